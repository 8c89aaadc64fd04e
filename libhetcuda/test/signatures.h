/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the test driver (real.c) that do something. They need names
 * that the library exports, and take what they like.
 */
#ifndef HETCUDA_TEST_SIGNATURES_H
#define HETCUDA_TEST_SIGNATURES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define ARGS0 cuTexRefCreate
#define ARGS1 cuTexRefDestroy
#define ARGS2 cuTexRefGetArray
#define ARGS6 cuTexRefGetFlags
#define ARGS7 cuTexRefGetFormat
#define ARGS8 cuTexRefSetArray
#define ARGS11 cuTexRefSetFlags
#define ARGS12 cuTexRefSetFormat
#define DOUBLES cuTexRefSetFilterMode
#define MIXED cuTexRefGetFilterMode
#define BYVALUE cuSurfRefGetArray
#define TWOWORDS cuSurfRefSetArray
#define TWODOUBLES cuParamSetf
#define LARGE cuParamSeti
#define VARIADIC cuParamSetv
#define ERRNO cuParamSetSize
#define TICK cuLaunch
#define BLOCK cuLaunchGrid
#define CALLBACK cuLaunchGridAsync
#define NOTHING cuProfilerStart
#define USABLE cuProfilerStop

/* Their names. */
#define SPECIAL(X) \
	X(ARGS0) X(ARGS1) X(ARGS2) X(ARGS6) X(ARGS7) X(ARGS8) X(ARGS11) X(ARGS12) \
	X(DOUBLES) X(MIXED) X(BYVALUE) X(TWOWORDS) X(TWODOUBLES) X(LARGE) X(VARIADIC) X(ERRNO) \
	X(TICK) X(BLOCK) X(CALLBACK) X(NOTHING) X(USABLE) \
	X(cuInit) X(cuDriverGetVersion) X(cuGetProcAddress) X(cuGetProcAddress_v2)

struct by_value {
	signed char c[64];
};

struct two_words {
	uint64_t a, b;
};

struct two_doubles {
	double a, b;
};

long ARGS0(void);
long ARGS1(uint64_t);
long ARGS2(uint64_t, uint64_t);
long ARGS6(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
long ARGS7(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
long ARGS8(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
long ARGS11(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
	    uint64_t);
long ARGS12(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
	    uint64_t, uint64_t);
double DOUBLES(double, float, double, double, double, double, double, double, double, double, double, double);
double MIXED(double, uint64_t, float, uint8_t, double, void *, double, uint64_t, double, uint64_t, double, uint64_t,
	     double, uint64_t, double, double);
int BYVALUE(struct by_value, int);
struct two_words TWOWORDS(uint64_t);
struct two_doubles TWODOUBLES(double);
struct by_value LARGE(int);
int VARIADIC(char *, const char *, ...) __attribute__((format(printf, 2, 3)));
int ERRNO(void);
int TICK(void);
int BLOCK(void);
int CALLBACK(int (*)(int), int);
int NOTHING(void);
int USABLE(void);
int cuInit(unsigned int);
int cuDriverGetVersion(int *);
int cuGetProcAddress(const char *, void **, int, uint64_t);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);

#endif
