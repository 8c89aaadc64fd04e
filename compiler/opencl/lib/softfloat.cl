// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Floating point by integers, for formats and rounding modes that OpenCL has not.
// A format is its precision p (with the hidden bit) and the bits of its exponent
// eb: 24, 8 is a float. Modes: 0 nearest even, 1 towards zero, 2 down, 3 up,
// 4 nearest away from zero.

static ulong hg_nan(int p, int eb) { return (1UL << (p - 1 + eb)) - 1; }

static ulong hg_inf(int p, int eb) { return ((1UL << eb) - 1) << (p - 1); }

static bool hg_isnan(ulong a, int p, int eb) { return (a & hg_nan(p, eb)) > hg_inf(p, eb); }

// The NaN that is the result of an operation on these: there is one, but for
// doubles, where the first that comes in goes out.
static ulong hg_quiet(ulong a, ulong b, ulong c, int p, int eb)
{
	if (p != 53)
		return hg_nan(p, eb);
	return (hg_isnan(a, p, eb) ? a : hg_isnan(b, p, eb) ? b : c) | 1UL << 51;
}

// The result of an operation that has none.
static ulong hg_invalid(int p, int eb) { return p == 53 ? 0xfff8000000000000UL : hg_nan(p, eb); }

static bool hg_isinf(ulong a, int p, int eb) { return (a & hg_nan(p, eb)) == hg_inf(p, eb); }

// A subnormal number becomes a zero with its sign.
static ulong hg_flush(ulong a, int p, int eb)
{
	return (a >> (p - 1) & ((1UL << eb) - 1)) == 0 ? a & 1UL << (p - 1 + eb) : a;
}

static uint hg_sign(ulong a, int p, int eb) { return (uint)(a >> (p - 1 + eb)) & 1; }

// A finite number: its value is m * 2^(e-63), the highest bit of m is set, or m is 0.
struct hg_num {
	ulong m;
	int e;
	uint sign;
};

static struct hg_num hg_unpack(ulong a, int p, int eb)
{
	struct hg_num n;
	int e = (int)(a >> (p - 1)) & ((1 << eb) - 1), bias = (1 << (eb - 1)) - 1;

	n.sign = hg_sign(a, p, eb);
	n.m = a & ((1UL << (p - 1)) - 1);
	if (e != 0)
		n.m |= 1UL << (p - 1);
	else
		e = 1;
	n.e = e - bias;
	if (n.m == 0) {
		n.e = 0;
		return n;
	}
	int s = (int)clz(n.m);
	n.m <<= s;
	n.e += 64 - p - s;
	return n;
}

// Bits shifted out are kept as one, the lowest ("sticky").
static ulong hg_jam(ulong m, int n) { return n <= 0 ? m : n > 63 ? m != 0 : m >> n | ((m << (64 - n)) != 0); }

// The number of sign, e and m (highest bit set, the lowest is sticky) in a format.
static ulong hg_pack(uint sign, int e, ulong m, int p, int eb, int mode)
{
	int bias = (1 << (eb - 1)) - 1, emin = 1 - bias, drop = 64 - p;
	ulong s = (ulong)sign << (p - 1 + eb), q, rem, tie = 1UL << (drop - 1);

	if (m == 0)
		return s;
	if (e > bias) {
		bool inf = mode == 0 || mode == 4 || (mode == 2 && sign) || (mode == 3 && !sign);
		return s | (hg_inf(p, eb) - (inf ? 0 : 1));
	}
	if (e < emin)
		m = hg_jam(m, emin - e);
	q = m >> drop;
	rem = m & ((1UL << drop) - 1);
	if (mode == 0 ? rem > tie || (rem == tie && q & 1)
		: mode == 2 ? sign && rem != 0 : mode == 3 ? !sign && rem != 0 : mode == 4 && rem >= tie)
		q++;
	return s | ((e < emin ? 0 : (ulong)(e - emin) << (p - 1)) + q);
}

static ulong hg_soft_fma(ulong a, ulong b, ulong c, int p, int eb, int mode)
{
	uint sp = hg_sign(a, p, eb) ^ hg_sign(b, p, eb), sc = hg_sign(c, p, eb);
	ulong top = (ulong)1 << (p - 1 + eb);

	if (hg_isnan(a, p, eb) || hg_isnan(b, p, eb) || hg_isnan(c, p, eb))
		return hg_quiet(a, b, c, p, eb);
	if (hg_isinf(a, p, eb) || hg_isinf(b, p, eb)) {
		if ((a & ~top) == 0 || (b & ~top) == 0 || (hg_isinf(c, p, eb) && sc != sp))
			return hg_invalid(p, eb);
		return hg_inf(p, eb) | (sp ? top : 0);
	}
	if (hg_isinf(c, p, eb))
		return c;
	if ((a & ~top) == 0 || (b & ~top) == 0) {
		if ((c & ~top) == 0)
			return (sp == sc ? sp : mode == 2) ? top : 0;
		return c;
	}
	struct hg_num na = hg_unpack(a, p, eb), nb = hg_unpack(b, p, eb), nc = hg_unpack(c, p, eb);
	// 128 bits, the highest one free for a carry: the product's lowest are zero.
	ulong hi = mul_hi(na.m, nb.m), lo = na.m * nb.m, ch = nc.m >> 1, cl = nc.m << 63;
	int e = na.e + nb.e + 1;
	uint sign = sp;

	if (hi >> 63 == 0) {
		hi = hi << 1 | lo >> 63;
		lo <<= 1;
		e--;
	}
	lo = lo >> 1 | hi << 63;
	hi >>= 1;
	if (nc.m != 0) {
		int d = e - nc.e;
		bool swap = d < 0 || (d == 0 && (ch > hi || (ch == hi && cl > lo)));
		if (swap) {
			ulong t = hi;
			hi = ch;
			ch = t;
			t = lo;
			lo = cl;
			cl = t;
			e = nc.e;
			d = -d;
			sign = sc;
		}
		if (d > 63) {
			cl = hg_jam(ch, d - 64) | (cl != 0);
			ch = 0;
		} else if (d > 0) {
			cl = cl >> d | ch << (64 - d) | ((cl << (64 - d)) != 0);
			ch >>= d;
		}
		if (sp == sc) {
			lo += cl;
			hi += ch + (lo < cl);
		} else {
			hi -= ch + (lo < cl);
			lo -= cl;
		}
	}
	if (hi == 0 && lo == 0)
		return mode == 2 ? top : 0;
	e++;
	if (hi == 0) {
		hi = lo;
		lo = 0;
		e -= 64;
	}
	int s = (int)clz(hi);
	if (s > 0) {
		hi = hi << s | lo >> (64 - s);
		lo <<= s;
	}
	return hg_pack(sign, e - s, hi | (lo != 0), p, eb, mode);
}

static ulong hg_soft_add(ulong a, ulong b, int p, int eb, int mode)
{
	return hg_soft_fma(a, ((1UL << (eb - 1)) - 1) << (p - 1), b, p, eb, mode);
}

static ulong hg_soft_sub(ulong a, ulong b, int p, int eb, int mode)
{
	return hg_isnan(b, p, eb) ? hg_quiet(a, b, b, p, eb) : hg_soft_add(a, b ^ 1UL << (p - 1 + eb), p, eb, mode);
}

static ulong hg_soft_mul(ulong a, ulong b, int p, int eb, int mode)
{
	return hg_soft_fma(a, b, (a ^ b) & 1UL << (p - 1 + eb), p, eb, mode);
}

static ulong hg_soft_div(ulong a, ulong b, int p, int eb, int mode)
{
	ulong top = 1UL << (p - 1 + eb), s = (a ^ b) & top;

	if (hg_isnan(a, p, eb) || hg_isnan(b, p, eb))
		return hg_quiet(a, b, b, p, eb);
	if ((hg_isinf(a, p, eb) && hg_isinf(b, p, eb)) || ((a & ~top) == 0 && (b & ~top) == 0))
		return hg_invalid(p, eb);
	if (hg_isinf(a, p, eb) || (b & ~top) == 0)
		return s | hg_inf(p, eb);
	if (hg_isinf(b, p, eb) || (a & ~top) == 0)
		return s;
	struct hg_num na = hg_unpack(a, p, eb), nb = hg_unpack(b, p, eb);
	ulong r = na.m >> 11, d = nb.m >> 11, q = 0;
	int e = na.e - nb.e;
	if (r < d) {
		r <<= 1;
		e--;
	}
	for (int i = 0; i < 62; i++) {
		q <<= 1;
		if (r >= d) {
			r -= d;
			q |= 1;
		}
		r <<= 1;
	}
	return hg_pack(s != 0, e, q << 2 | (r != 0), p, eb, mode);
}

static ulong hg_soft_sqrt(ulong a, int p, int eb, int mode)
{
	ulong top = 1UL << (p - 1 + eb);

	if ((a & ~top) == 0)
		return a;
	if (hg_isnan(a, p, eb))
		return hg_quiet(a, a, a, p, eb);
	if (a & top)
		return hg_invalid(p, eb);
	if (hg_isinf(a, p, eb))
		return a;
	// The radicand is m * 2^(e-63) with e even; its root's bits one by one.
	struct hg_num n = hg_unpack(a, p, eb);
	ulong m = n.m, rem = 0, root = 0;
	int e = n.e;
	if (e & 1) {
		e--;
		rem = m >> 62;
		m <<= 2;
	} else {
		rem = m >> 63;
		m <<= 1;
	}
	for (int i = 0; i < 58; i++) {
		if (i > 0) {
			rem = rem << 2 | m >> 62;
			m <<= 2;
		}
		ulong t = root << 2 | 1;
		root <<= 1;
		if (rem >= t) {
			rem -= t;
			root |= 1;
		}
	}
	return hg_pack(0, e / 2, root << 6 | (rem != 0), p, eb, mode);
}

// From one format to another.
static ulong hg_soft_cvt(ulong a, int p, int eb, int q, int fb, int mode)
{
	if (hg_isnan(a, p, eb))
		return hg_nan(q, fb);
	if (hg_isinf(a, p, eb))
		return hg_inf(q, fb) | (ulong)hg_sign(a, p, eb) << (q - 1 + fb);
	struct hg_num n = hg_unpack(a, p, eb);
	return hg_pack(n.sign, n.e, n.m, q, fb, mode);
}

// From an integer's sign and magnitude.
static ulong hg_soft_int(uint sign, ulong m, int p, int eb, int mode)
{
	if (m == 0)
		return 0;
	int s = (int)clz(m);
	return hg_pack(sign, 63 - s, m << s, p, eb, mode);
}
