// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "variables.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "context.h"
#include "image.h"
#include "log.h"
#include "managed.h"
#include "managed_driver.h"
#include "overrides.h"
#include "parts.h"
#include "real.h"

struct variable {
	struct variable *next;
	const char *name; // of the image
	struct placed place;
};

// Something that was loaded without its marks. The driver may read the image until it
// is unloaded.
struct loaded {
	struct loaded *next;
	CUmodule module; // or
	CUlibrary library;
	struct image image;
	CUcontext context; // that its variables are of; NULL: they are nowhere
	bool retained;     // by a library
	bool counted;      // in `used`
	// What take used, to be given back when the lock is released: that may be the
	// context's end.
	struct context *busy;
	struct variable *variables;
};

static struct loaded *all;
static _Atomic unsigned used; // with variables, or being loaded
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void release(pthread_mutex_t **held)
{
	pthread_mutex_unlock(*held);
}

#define LOCKED()                                                                            \
	__attribute__((cleanup(release), unused)) pthread_mutex_t *locked = &lock; \
	pthread_mutex_lock(&lock)

bool variables_any(void)
{
	return atomic_load(&used) > 0;
}

// What was asked for, so that it can be done with another image. A call that fails may
// have changed some of the values.
struct job {
	CUresult (*load)(const struct job *j, const void *code);
	CUmodule *module;
	CUlibrary *library;
	const char *file;
	CUjit_option *options;
	void **values;
	unsigned int count;
	CUlibraryOption *library_options;
	void **library_values;
	unsigned int library_count;
};

static CUresult as_asked(const struct job *j, const void *code)
{
	return j->load(j, code);
}

// place_all puts the variables of a context where the driver has them. Lock: held.
static CUresult place_all(struct loaded *l, CUcontext context, CUdevice device)
{
	CUresult r = CUDA_SUCCESS;
	PAGES();
	for (struct variable *v = l->variables; v && r == CUDA_SUCCESS; v = v->next)
		r = place(context, device, &v->place);
	l->context = r == CUDA_SUCCESS ? context : NULL;
	for (struct variable *v = l->variables; v && r != CUDA_SUCCESS; v = v->next)
		unplace(&v->place, true);
	return r;
}

static void unplace_all(struct loaded *l, bool there)
{
	PAGES();
	for (struct variable *v = l->variables; l->context && v; v = v->next)
		unplace(&v->place, there);
	l->context = NULL;
}

static void forget_variables(struct loaded *l)
{
	for (struct variable *v; (v = l->variables); free(v))
		l->variables = v->next;
}

// find_all asks the driver where the variables are. One that isn't in what it has chosen
// of the image isn't there; one that is managed is its own.
static CUresult find_all(struct loaded *l)
{
	for (size_t i = 0; i < l->image.count; i++) {
		CUdeviceptr address = 0;
		size_t size = 0;
		const char *name = l->image.names[i];
		CUresult r = l->library ? REAL(cuLibraryGetGlobal)(&address, &size, l->library, name)
					: REAL(cuModuleGetGlobal)(&address, &size, l->module, name);
		if (r == CUDA_ERROR_NOT_FOUND || (r == CUDA_SUCCESS && managed_driver_has(address)))
			continue;
		struct variable *v = r == CUDA_SUCCESS ? calloc(1, sizeof *v) : NULL;
		if (!v)
			return r == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : r;
		*v = (struct variable){l->variables, name, {address, size, new_id(), false}};
		l->variables = v;
	}
	return CUDA_SUCCESS;
}

// take makes the variables of what was loaded ours, in the context that is current.
// Lock: held; finish has to follow when it is released.
static CUresult take(struct loaded *l)
{
	CUresult r;
	struct context *c = context_current(&r);
	if (!c)
		return r;
	r = c->primary ? find_all(l) : CUDA_ERROR_NOT_SUPPORTED;
	if (r == CUDA_SUCCESS && l->variables)
		r = managed_ready(c->device) ? place_all(l, c->handle, c->device) : CUDA_ERROR_NOT_SUPPORTED;
	if (r != CUDA_SUCCESS)
		forget_variables(l);
	l->busy = c;
	return r;
}

static void finish(struct context *busy)
{
	if (busy)
		context_done(busy);
}

// take_library does so in the primary context, which it retains: give_back has to follow
// when the lock is released.
static CUresult take_library(struct loaded *l)
{
	CUcontext primary, before;
	CUresult r = REAL(cuDevicePrimaryCtxRetain)(&primary, 0);
	if (r != CUDA_SUCCESS)
		return r;
	l->retained = true;
	r = context_switch(primary, &before);
	if (r == CUDA_SUCCESS) {
		r = take(l);
		context_switch_back(primary, before);
	}
	return r;
}

// give_back releases a context that no variable needs. Lock: not held, for it may be the
// context's end.
static void give_back(struct loaded *l)
{
	if (!l->retained || l->context)
		return;
	l->retained = false;
	hetcuda_cuDevicePrimaryCtxRelease_v2(0);
}

// alone tells whether a variable of a device is one for all that the program has, and
// ours if we make it so.
static bool alone(void)
{
	int count = 0;
	return managed_variables_wanted() && context_others() == 0 && REAL(cuDeviceGetCount)(&count) == CUDA_SUCCESS && count == 1;
}

// in_primary tells whether the current context is the device's primary one.
static bool in_primary(void)
{
	CUresult r;
	struct context *c = context_current(&r);
	bool is = c && c->primary;
	if (c)
		context_done(c);
	return is;
}

// load_unmarked loads the image of l, and makes its variables ours. Nothing of it is
// left if it fails. Lock: held.
static CUresult load_unmarked(const struct job *j, struct loaded *l)
{
	CUresult r = as_asked(j, l->image.code);
	if (r != CUDA_SUCCESS)
		return r;
	l->module = j->module ? *j->module : NULL;
	l->library = j->library ? *j->library : NULL;
	r = l->library ? take_library(l) : take(l);
	if (r == CUDA_SUCCESS)
		return r;
	hetcuda_log("managed variables are left to the driver: error %d", (int)r);
	if (l->library)
		REAL(cuLibraryUnload)(l->library);
	else
		REAL(cuModuleUnload)(l->module);
	return r;
}

static void drop(struct loaded *l)
{
	forget_variables(l);
	image_free(&l->image);
	free(l);
}

// load loads an image, without the marks if that can be done, else as it is.
static CUresult load(struct job *j, const void *code, size_t size)
{
	struct image image;
	if (!code || !(j->module || j->library) || !alone() || (j->module && !in_primary()) || !image_unmark(code, size, &image))
		return as_asked(j, code);
	struct loaded *l = calloc(1, sizeof *l);
	void **values = j->count ? calloc(j->count, sizeof *values) : NULL;
	if (l)
		l->image = image;
	else
		image_free(&image);
	if (values && j->values)
		memcpy(values, j->values, j->count * sizeof *values);
	bool ours = false;
	{
		LOCKED();
		// Who makes a context sees this first, or we that one.
		atomic_fetch_add(&used, 1);
		ours = l && !context_others() && load_unmarked(j, l) == CUDA_SUCCESS;
		if (ours) {
			l->next = all;
			all = l;
		}
		if (ours && l->variables)
			l->counted = true;
		else
			atomic_fetch_sub(&used, 1);
	}
	if (l) {
		struct context *busy = l->busy;
		l->busy = NULL;
		give_back(l);
		finish(busy); // the end of l, too, if it is the context's
	}
	if (!ours && values && j->values)
		memcpy(j->values, values, j->count * sizeof *values);
	free(values);
	if (ours)
		return CUDA_SUCCESS;
	if (l)
		drop(l);
	return as_asked(j, code);
}

#define MOST ((off_t)1 << 30) // of a file that is looked at

// read_file reads a file, with a zero behind it; NULL if it can't.
static void *read_file(const char *name, size_t *size)
{
	int fd = name ? open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
	off_t end = fd >= 0 ? lseek(fd, 0, SEEK_END) : -1;
	char *p = end > 0 && end < MOST && lseek(fd, 0, SEEK_SET) == 0 ? malloc((size_t)end + 1) : NULL;
	for (*size = 0; p && *size < (size_t)end;) {
		ssize_t n = read(fd, p + *size, (size_t)end - *size);
		if (n <= 0) {
			free(p);
			p = NULL;
		} else {
			*size += (size_t)n;
		}
	}
	if (fd >= 0)
		close(fd);
	if (p)
		p[(*size)++] = 0;
	return p;
}

// load_file loads a file as the driver would, and as data if it has marks.
static CUresult load_file(struct job *j)
{
	size_t size;
	struct image image;
	void *p = alone() ? read_file(j->file, &size) : NULL;
	if (!p || !image_unmark(p, size, &image)) {
		free(p);
		return as_asked(j, NULL);
	}
	image_free(&image);
	CUresult r = load(j, p, size);
	free(p);
	return r;
}

// With a file that is to be loaded as it is there is no code.
static CUresult load_data(const struct job *j, const void *code)
{
	return j->file && !code ? REAL(cuModuleLoad)(j->module, j->file) : REAL(cuModuleLoadData)(j->module, code);
}

static CUresult load_data_ex(const struct job *j, const void *code)
{
	return REAL(cuModuleLoadDataEx)(j->module, code, j->count, j->options, j->values);
}

static CUresult load_fatbin(const struct job *j, const void *code)
{
	return REAL(cuModuleLoadFatBinary)(j->module, code);
}

static CUresult load_library(const struct job *j, const void *code)
{
	if (j->file && !code)
		return REAL(cuLibraryLoadFromFile)(j->library, j->file, j->options, j->values, j->count, j->library_options,
						   j->library_values, j->library_count);
	return REAL(cuLibraryLoadData)(j->library, code, j->options, j->values, j->count, j->library_options, j->library_values,
				       j->library_count);
}

CUresult hetcuda_cuModuleLoad(CUmodule *module, const char *file)
{
	struct job j = {.load = load_data, .module = module, .file = file};
	return load_file(&j);
}

CUresult hetcuda_cuModuleLoadData(CUmodule *module, const void *code)
{
	struct job j = {.load = load_data, .module = module};
	return load(&j, code, 0);
}

CUresult hetcuda_cuModuleLoadDataEx(CUmodule *module, const void *code, unsigned int count, CUjit_option *options, void **values)
{
	struct job j = {.load = load_data_ex, .module = module, .options = options, .values = values, .count = count};
	return load(&j, code, 0);
}

CUresult hetcuda_cuModuleLoadFatBinary(CUmodule *module, const void *code)
{
	struct job j = {.load = load_fatbin, .module = module};
	return load(&j, code, 0);
}

CUresult hetcuda_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options, void **values, unsigned int count,
				   CUlibraryOption *library_options, void **library_values, unsigned int library_count)
{
	struct job j = {load_library, NULL, library, NULL, options, values, count, library_options, library_values, library_count};
	return load(&j, code, 0);
}

CUresult hetcuda_cuLibraryLoadFromFile(CUlibrary *library, const char *file, CUjit_option *options, void **values,
				       unsigned int count, CUlibraryOption *library_options, void **library_values,
				       unsigned int library_count)
{
	struct job j = {load_library, NULL, library, file, options, values, count, library_options, library_values, library_count};
	return load_file(&j);
}

// find is where what has a handle hangs. Lock: held.
static struct loaded **find(CUmodule module, CUlibrary library)
{
	struct loaded **link = &all;
	while (*link && ((*link)->module != module || (*link)->library != library))
		link = &(*link)->next;
	return link;
}

// unload unloads something, if it is ours; the device gets what the CPU has written
// first, for a call that fails.
static bool unload(CUmodule module, CUlibrary library, CUresult *result)
{
	struct loaded *l;
	{
		LOCKED();
		struct loaded **link = find(module, library);
		l = *link;
		if (!l)
			return false;
		CUcontext context = l->context;
		unplace_all(l, true);
		*result = library ? REAL(cuLibraryUnload)(library) : REAL(cuModuleUnload)(module);
		if (*result != CUDA_SUCCESS) {
			if (context && place_all(l, context, 0) != CUDA_SUCCESS)
				hetcuda_warn("the managed variables of a module that wasn't unloaded are lost");
			return true;
		}
		atomic_fetch_sub(&used, l->counted);
		*link = l->next;
	}
	give_back(l);
	drop(l);
	return true;
}

CUresult hetcuda_cuModuleUnload(CUmodule module)
{
	CUresult r;
	return module && unload(module, NULL, &r) ? r : REAL(cuModuleUnload)(module);
}

CUresult hetcuda_cuLibraryUnload(CUlibrary library)
{
	CUresult r;
	return library && unload(NULL, library, &r) ? r : REAL(cuLibraryUnload)(library);
}

bool variables_find(CUlibrary library, const char *name, CUdeviceptr *address, size_t *size)
{
	if (!variables_any() || !library || !name || (!address && !size))
		return false;
	LOCKED();
	const struct loaded *l = *find(NULL, library);
	for (const struct variable *v = l && l->context ? l->variables : NULL; v; v = v->next) {
		if (strcmp(v->name, name) != 0)
			continue;
		if (address)
			*address = v->place.address;
		if (size)
			*size = v->place.size;
		return true;
	}
	return false;
}

// A library outlives its context. Its variables are there again when there is another.
// take_again does that for one, and tells whether there was one.
static bool take_again(void)
{
	bool retained = false;
	struct context *busy;
	{
		LOCKED();
		struct loaded *l = all;
		while (l && (!l->library || !l->counted || l->context))
			l = l->next;
		if (!l)
			return false;
		bool taken = take_library(l) == CUDA_SUCCESS && l->context;
		busy = l->busy;
		l->busy = NULL;
		if (!taken) {
			hetcuda_warn("the managed variables of a library that the program had before it reset the device are lost");
			l->counted = false;
			atomic_fetch_sub(&used, 1);
			retained = l->retained;
			l->retained = false;
		}
	}
	finish(busy);
	if (retained)
		hetcuda_cuDevicePrimaryCtxRelease_v2(0);
	return true;
}

CUresult hetcuda_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	CUresult r = REAL(cuDevicePrimaryCtxRetain)(context, device);
	while (r == CUDA_SUCCESS && variables_any() && take_again()) {
	}
	return r;
}

void variables_context_gone(CUcontext context)
{
	LOCKED();
	for (struct loaded **link = &all, *l; (l = *link);) {
		if (!l->context || l->context != context) {
			link = &l->next;
			continue;
		}
		unplace_all(l, false);
		if (l->library) {
			l->retained = false;
			forget_variables(l);
			link = &l->next;
			continue;
		}
		*link = l->next;
		atomic_fetch_sub(&used, l->counted);
		drop(l);
	}
}

void variables_forked(void)
{
	pthread_mutex_init(&lock, NULL);
	all = NULL;
	atomic_store(&used, 0);
}
