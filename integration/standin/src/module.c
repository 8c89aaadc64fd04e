// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Modules and libraries, which are the same here, but for when there are variables.
// Managed ones are made when either is loaded, those of the device when a module is,
// and of a library when somebody asks for one in a context. They go when it is unloaded.
#include <string.h>
#include <sys/mman.h>

#include "image.h"
#include "process.h"

struct CUmod_st {
	struct image image;
	CUdeviceptr addresses[MAX_VARIABLES]; // 0: not made
};

// Variables of the device lie side by side in addresses that the process keeps for
// them, where the CPU can't touch anything: at multiples of 256, the lowest that are
// free (as driver 580 has them, measured).
enum { AREA = 64 << 20, APART = 256, PAGE = 2 << 20 };

static CUdeviceptr area(void)
{
	static CUdeviceptr start;
	if (start)
		return start;
	void *p = mmap(NULL, AREA + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p != MAP_FAILED)
		start = ((uintptr_t)p + PAGE - 1) / PAGE * PAGE;
	return start;
}

static CUresult make_device(CUdeviceptr *address, size_t size, int gpu)
{
	CUdeviceptr at = area(), end = at + AREA;
	while (at && at + size <= end && alloc_overlaps(at, size))
		at += APART;
	if (!at || at + size > end)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct alloc *a = alloc_new();
	if (!a)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct alloc made = {.kind = DEVICE, .gpu = gpu, .size = size, .address = at, .variable = true};
	CLEAN_FD int lock = machine_lock();
	CUresult r = alloc_create(&made);
	if (r == CUDA_SUCCESS) {
		*a = made;
		*address = at;
	}
	return r;
}

// there tells whether a variable has been made, and its context has not ended.
static bool there(const struct CUmod_st *m, int i)
{
	const struct alloc *a = m->addresses[i] ? alloc_at(m->addresses[i]) : NULL;
	return a && a->address == m->addresses[i];
}

static CUresult make(struct CUmod_st *m, int i, int gpu)
{
	const struct image_variable *v = &m->image.variables[i];
	if (there(m, i))
		return CUDA_SUCCESS;
	CUresult r = v->managed ? managed_create(&m->addresses[i], v->size, gpu) : make_device(&m->addresses[i], v->size, gpu);
	if (r == CUDA_SUCCESS)
		alloc_at(m->addresses[i])->variable = true;
	if (r == CUDA_SUCCESS && v->initial && !alloc_write(alloc_at(m->addresses[i]), 0, v->initial, v->size))
		return CUDA_ERROR_OPERATING_SYSTEM;
	return r;
}

// make_all makes the managed variables, and those of a device if there is one.
static CUresult make_all(struct CUmod_st *m, int gpu)
{
	CUresult r = CUDA_SUCCESS;
	for (int i = 0; i < m->image.count && r == CUDA_SUCCESS; i++)
		if (gpu >= 0 || m->image.variables[i].managed)
			r = make(m, i, gpu >= 0 ? gpu : 0);
	return r;
}

static void unload(struct CUmod_st *m)
{
	for (int i = 0; i < m->image.count; i++)
		if (there(m, i))
			alloc_drop(alloc_at(m->addresses[i]));
	image_end(&m->image);
	free(m);
}

static CUresult load(struct CUmod_st **module, const void *image, int gpu)
{
	struct CUmod_st *m = calloc(1, sizeof *m);
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = image_read(&m->image, image) ? make_all(m, gpu) : CUDA_ERROR_INVALID_PTX;
	if (r == CUDA_SUCCESS)
		*module = m;
	else
		unload(m);
	return r;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	ENTER();
	if (!module || !image)
		return CUDA_ERROR_INVALID_VALUE;
	return context_gpu() < 0 ? CUDA_ERROR_INVALID_CONTEXT : load(module, image, context_gpu());
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void **values)
{
	(void)count;
	(void)options;
	(void)values;
	return cuModuleLoadData(module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	return cuModuleLoadData(module, image);
}

// contents reads a file, with a zero behind it.
static void *contents(const char *file)
{
	FILE *f = file ? fopen(file, "re") : NULL;
	char *p = NULL;
	long size;
	if (f && fseek(f, 0, SEEK_END) == 0 && (size = ftell(f)) > 0 && (p = calloc(1, (size_t)size + 1))) {
		rewind(f);
		if (fread(p, 1, (size_t)size, f) != (size_t)size)
			p[0] = 0;
	}
	if (f)
		fclose(f);
	return p;
}

CUresult cuModuleLoad(CUmodule *module, const char *file)
{
	CLEAN_FREE void *image = contents(file);
	return image ? cuModuleLoadData(module, image) : CUDA_ERROR_FILE_NOT_FOUND;
}

static int named(const struct CUmod_st *m, const char *name)
{
	for (int i = 0; i < m->image.count; i++)
		if (strcmp(m->image.variables[i].name, name) == 0)
			return i;
	return -1;
}

static void answer(const struct CUmod_st *m, int i, CUdeviceptr *address, size_t *size)
{
	if (address)
		*address = m->addresses[i];
	if (size)
		*size = m->image.variables[i].size;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, CUmodule module, const char *name)
{
	ENTER();
	if ((!address && !size) || !module || !name)
		return CUDA_ERROR_INVALID_VALUE;
	int i = named(module, name);
	if (i < 0 || !there(module, i))
		return CUDA_ERROR_NOT_FOUND;
	answer(module, i, address, size);
	return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	ENTER();
	if (!function || !module || !name)
		return CUDA_ERROR_INVALID_VALUE;
	const struct CUfunc_st *f = image_has(&module->image, name) ? kernel_find(name) : NULL;
	if (!f)
		return CUDA_ERROR_NOT_FOUND;
	*function = (CUfunction)(uintptr_t)f;
	return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module)
{
	ENTER_IDLE();
	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	unload(module);
	return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options, void **values, unsigned int count,
			   CUlibraryOption *library_options, void **library_values, unsigned int library_count)
{
	ENTER();
	(void)options, (void)values, (void)count, (void)library_options, (void)library_values, (void)library_count;
	return library && code ? load((CUmodule *)library, code, -1) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *file, CUjit_option *options, void **values, unsigned int count,
			       CUlibraryOption *library_options, void **library_values, unsigned int library_count)
{
	CLEAN_FREE void *code = contents(file);
	return code ? cuLibraryLoadData(library, code, options, values, count, library_options, library_values, library_count)
		    : CUDA_ERROR_FILE_NOT_FOUND;
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
	ENTER();
	CUmodule m = (CUmodule)library;
	if (!module || !library)
		return CUDA_ERROR_INVALID_VALUE;
	*module = m;
	return context_gpu() < 0 ? CUDA_ERROR_INVALID_CONTEXT : make_all(m, context_gpu());
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *size, CUlibrary library, const char *name)
{
	ENTER();
	CUmodule m = (CUmodule)library;
	if ((!address && !size) || !library || !name)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = context_gpu() < 0 ? CUDA_ERROR_INVALID_CONTEXT : make_all(m, context_gpu());
	int i = named(m, name);
	if (r == CUDA_SUCCESS && i < 0)
		r = CUDA_ERROR_NOT_FOUND;
	if (r == CUDA_SUCCESS)
		answer(m, i, address, size);
	return r;
}

CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *size, CUlibrary library, const char *name)
{
	ENTER();
	CUmodule m = (CUmodule)library;
	if ((!address && !size) || !library || !name)
		return CUDA_ERROR_INVALID_VALUE;
	int i = named(m, name);
	if (i < 0 || !m->image.variables[i].managed)
		return CUDA_ERROR_NOT_FOUND;
	CUresult r = make(m, i, 0);
	if (r == CUDA_SUCCESS)
		answer(m, i, address, size);
	return r;
}

CUresult cuLibraryUnload(CUlibrary library)
{
	return cuModuleUnload((CUmodule)library);
}
