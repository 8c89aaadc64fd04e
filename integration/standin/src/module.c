// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Modules and libraries, which are the same here: PTX, of which is understood
// which kernels it has (kernel.c), and which managed variables (PTX ISA 5.4.8):
//
//     .visible .global .attribute(.managed) .align 4 .u32 name[16];
//
// These are made when it is loaded and go when it is unloaded.
#include <ctype.h>
#include <string.h>

#include "process.h"

enum { MAX_VARIABLES = 16 };

#define ATTRIBUTE ".attribute(.managed)"

struct CUmod_st {
	char *text;
	struct variable {
		char name[64];
		CUdeviceptr address;
		size_t size;
	} variables[MAX_VARIABLES];
	int count;
};

// type_size is that of ".u32" and the like, 0 for what is no type.
static size_t type_size(const char *word)
{
	if (!strchr("busf", word[1]) || !isdigit((unsigned char)word[2]))
		return 0;
	return strtoul(word + 2, NULL, 10) / 8;
}

// declared reads one declaration, from behind the attribute.
static bool declared(const char *p, struct variable *v)
{
	char word[64];
	int n;
	size_t size = 0;
	for (; sscanf(p, " %63[^][ \t\n;=]%n", word, &n) == 1; p += n) {
		if (strcmp(word, ".align") == 0) {
			sscanf(p += n, " %*u%n", &n);
		} else if (word[0] == '.') {
			size = type_size(word);
		} else {
			memcpy(v->name, word, sizeof word);
			p += n;
			v->size = size * (*p == '[' ? strtoul(p + 1, NULL, 10) : 1);
			return v->size > 0;
		}
	}
	return false;
}

static void unload(struct CUmod_st *m)
{
	while (m->count > 0)
		alloc_drop(alloc_at(m->variables[--m->count].address));
	free(m->text);
	free(m);
}

static CUresult make_variables(struct CUmod_st *m)
{
	const char *p = m->text;
	while ((p = strstr(p, ATTRIBUTE))) {
		struct variable *v = &m->variables[m->count];
		p += strlen(ATTRIBUTE);
		if (m->count == MAX_VARIABLES || !declared(p, v))
			return CUDA_ERROR_INVALID_PTX;
		CUresult r = managed_create(&v->address, v->size);
		if (r != CUDA_SUCCESS)
			return r;
		m->count++;
	}
	return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	ENTER();
	if (!module || !image)
		return CUDA_ERROR_INVALID_VALUE;
	if (context_gpu() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!strstr(image, ".version"))
		return CUDA_ERROR_INVALID_PTX;
	struct CUmod_st *m = calloc(1, sizeof *m);
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m->text = strdup(image);
	CUresult r = m->text ? make_variables(m) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS)
		*module = m;
	else
		unload(m);
	return r;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void **values)
{
	(void)count;
	(void)options;
	(void)values;
	return cuModuleLoadData(module, image);
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, CUmodule module, const char *name)
{
	ENTER();
	if ((!address && !size) || !module || !name)
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < module->count; i++) {
		const struct variable *v = &module->variables[i];
		if (strcmp(v->name, name) != 0)
			continue;
		if (address)
			*address = v->address;
		if (size)
			*size = v->size;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	ENTER();
	char entry[64];
	if (!function || !module || !name)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(entry, sizeof entry, ".entry %s(", name);
	const struct CUfunc_st *f = strstr(module->text, entry) ? kernel_find(name) : NULL;
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
	(void)options, (void)values, (void)count, (void)library_options, (void)library_values, (void)library_count;
	return cuModuleLoadData((CUmodule *)library, code);
}

CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *size, CUlibrary library, const char *name)
{
	return cuModuleGetGlobal_v2(address, size, (CUmodule)library, name);
}

CUresult cuLibraryUnload(CUlibrary library)
{
	return cuModuleUnload((CUmodule)library);
}
