__kernel void k_relay(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	k_relay__r0(hg, hg_shared);
}

__kernel void k_relay__ra(__global const struct hg_launch *hg, __local ulong2 *hg_memory)
{
	__local uchar *hg_shared = (__local uchar *)hg_memory;
	const uint hg_b = hg->list ? ((__global const uint *)hg->list)[get_group_id(0)] : get_group_id(0);
	switch (((__global const uint *)hg->state)[hg_b]) {
	case 1: k_relay__r1(hg, hg_shared); break;
	case 2: k_relay__r2(hg, hg_shared); break;
	case 3: k_relay__r3(hg, hg_shared); break;
	default: k_relay__r0(hg, hg_shared);
	}
}

