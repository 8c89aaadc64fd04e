// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// vprintf: the format and its arguments are read where the program has them, and
// printed a piece at a time with OpenCL's printf, whose own formats must be
// constants. Pieces of different threads may mix on devices that do not keep what
// a thread prints together.
//
// What calls printf is always inlined: PoCL (3.1) gives such functions its buffer as
// further arguments, and forgets the calling convention (LLVM's fastcc, as they are
// static) at their calls, which LLVM then takes for unreachable.

static __attribute__((always_inline)) void hg_print_text(ulong a, __local uchar *s, __private uchar *l, ulong p, uint width, bool left)
{
	uint n = 0;

	while (a != 0 && hg_ld_b8(a + n, s, l, p) != 0)
		n++;
	for (uint i = n; !left && i < width; i++)
		printf("%c", ' ');
	for (uint i = 0; i < n; i++)
		printf("%c", hg_ld_b8(a + i, s, l, p));
	for (uint i = n; left && i < width; i++)
		printf("%c", ' ');
}

// A number with C's flags, width and precision, to text: OpenCL's printf takes
// neither from a variable.
static __attribute__((always_inline)) void hg_print_padded(__private const uchar *text, uint n, uint width, bool left, bool zeroes)
{
	uint sign = n > 0 && (text[0] == '-' || text[0] == '+' || text[0] == ' ') && zeroes ? 1 : 0;

	if (sign)
		printf("%c", text[0]);
	for (uint i = n; !left && i < width; i++)
		printf("%c", zeroes ? '0' : ' ');
	for (uint i = sign; i < n; i++)
		printf("%c", text[i]);
	for (uint i = n; left && i < width; i++)
		printf("%c", ' ');
}

static uint hg_digits(__private uchar *text, uint n, ulong v, uint radix, bool upper, uint least)
{
	uchar digits[24];
	uint k = 0;

	while (v != 0 || k < least) {
		uint d = (uint)(v % radix);
		digits[k++] = (uchar)(d < 10 ? '0' + d : (upper ? 'A' : 'a') + d - 10);
		v /= radix;
	}
	while (k > 0)
		text[n++] = digits[--k];
	return n;
}

#if defined(cl_khr_fp64) || defined(__opencl_c_fp64)
// %f, rounded to the nearest: exact for what has up to 18 digits.
static uint hg_fixed(__private uchar *text, uint n, double x, uint precision)
{
	ulong scale = 1;

	precision = min(precision, 9u);
	for (uint i = 0; i < precision; i++)
		scale *= 10;
	double whole = floor(x), rest = rint((x - whole) * (double)scale);
	if (rest >= (double)scale) {
		rest = 0.0;
		whole += 1.0;
	}
	n = hg_digits(text, n, (ulong)whole, 10, false, 1);
	if (precision > 0) {
		text[n++] = '.';
		n = hg_digits(text, n, (ulong)rest, 10, false, precision);
	}
	return n;
}
#endif

static __attribute__((always_inline)) int hg_printf(ulong f, ulong a, __local uchar *s, __private uchar *l, ulong p)
{
	int count = 0;

	if (f == 0)
		return -1;
	for (uchar c; (c = hg_ld_b8(f, s, l, p)) != 0; f++) {
		bool left = false, zeroes = false, plus = false, space = false, big = false, exact = false, alternate = false;
		uint width = 0, precision = 0, n = 0;
		uchar text[64];

		if (c != '%') {
			printf("%c", c);
			continue;
		}
		for (f++; (c = hg_ld_b8(f, s, l, p)) == '-' || c == '0' || c == '+' || c == ' ' || c == '#'; f++) {
			left = left || c == '-';
			zeroes = zeroes || c == '0';
			plus = plus || c == '+';
			space = space || c == ' ';
			alternate = alternate || c == '#';
		}
		for (; (c = hg_ld_b8(f, s, l, p)) >= '0' && c <= '9'; f++)
			width = width * 10 + c - '0';
		if (c == '.') {
			exact = true;
			for (f++; (c = hg_ld_b8(f, s, l, p)) >= '0' && c <= '9'; f++)
				precision = precision * 10 + c - '0';
		}
		for (; c == 'l' || c == 'h' || c == 'z' || c == 'j' || c == 't'; c = hg_ld_b8(++f, s, l, p))
			big = big || c != 'h';
		if (c == 0)
			break;
		if (c == '%') {
			printf("%c", '%');
			continue;
		}
		count++;
		bool wide = big || c == 's' || c == 'p' || c == 'f' || c == 'F' || c == 'e' || c == 'E' || c == 'g' || c == 'G' || c == 'a';
		ulong v;
		if (wide) {
			a = (a + 7) & ~7UL;
			v = hg_ld_b64(a, s, l, p);
			a += 8;
		} else {
			v = hg_ld_b32(a, s, l, p);
			a += 4;
		}
		if (c == 's') {
			hg_print_text(v, s, l, p, width, left);
			continue;
		}
		if (c == 'c') {
			text[n++] = (uchar)v;
			hg_print_padded(text, n, width, left, false);
			continue;
		}
		precision = min(precision, 20u);
		if (c == 'd' || c == 'i') {
			long x = wide ? as_long(v) : (long)as_int((uint)v);
			if (x < 0)
				text[n++] = '-';
			else if (plus || space)
				text[n++] = plus ? '+' : ' ';
			n = hg_digits(text, n, x < 0 ? 0 - (ulong)x : (ulong)x, 10, false, exact ? precision : 1);
			zeroes = zeroes && !exact;
		} else if (c == 'u' || c == 'x' || c == 'X' || c == 'o' || c == 'p') {
			if (c == 'p' || (alternate && v != 0 && c != 'o' && c != 'u')) {
				text[n++] = '0';
				text[n++] = c == 'X' ? 'X' : 'x';
			}
			n = hg_digits(text, n, v, c == 'u' ? 10 : c == 'o' ? 8 : 16, c == 'X', exact ? precision : 1);
			zeroes = zeroes && !exact;
#if defined(cl_khr_fp64) || defined(__opencl_c_fp64)
		} else {
			double x = as_double(v);
			if (c != 'f' && c != 'F') {
				if (c == 'g' || c == 'G')
					printf("%g", x);
				else
					printf("%e", x);
				continue;
			}
			if (v >> 63)
				text[n++] = '-';
			else if (plus || space)
				text[n++] = plus ? '+' : ' ';
			x = fabs(x);
			if (!(x < 1e18)) {
				printf("%f", as_double(v));
				continue;
			}
			n = hg_fixed(text, n, x, exact ? precision : 6);
#endif
		}
		hg_print_padded(text, n, width, left, zeroes && !left);
	}
	return count;
}
