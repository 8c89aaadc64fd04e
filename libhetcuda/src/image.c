// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "image.h"

#include <ctype.h>
#include <elf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

// No image that is changed is larger, has more variables, or longer names.
#define LIMIT ((size_t)1 << 30)
enum { MOST_MARKS = 1 << 14, MOST_NAMES = 4096, LONGEST = 4096, PAGE = 4096 };

enum {
	STO_CUDA_MANAGED = 4,
	FATBIN_MAGIC = (int)0xba55ed50,
	WRAPPER_MAGIC = 0x466243b1,
	FATBIN_PTX = 1, // kinds of entries
	FATBIN_ELF = 2,
	FATBIN_LZ4 = 0x2000, // flags of one
	FATBIN_ZSTD = 0x8000,
};

#ifndef EM_CUDA
#define EM_CUDA 190
#endif

// What stands around a fatbin (fatbinary_section.h of the toolkit).
struct wrapper {
	uint32_t magic, version;
	const void *data;
	const void *others; // version 2: fatbins to link
};

// Nobody documents these; they are as nvcc 13.0 writes them.
struct fatbin {
	uint32_t magic;
	uint16_t version, header;
	uint64_t size; // of all entries
};

struct entry {
	uint16_t kind, unknown;
	uint32_t header; // its size
	uint64_t size;   // of what follows it
	uint32_t compressed, unknown2; // size of what is compressed, 0 if nothing is
	uint16_t minor, major;
	uint32_t architecture, name, name_size;
	uint64_t flags, zero, uncompressed;
};

_Static_assert(sizeof(struct fatbin) == 16 && sizeof(struct entry) == 64, "as they are in the file");

// Bytes of the program's, of which no more than size are looked at.
struct source {
	const char *at;
	size_t size;
};

// A place that the copy is changed at: the bit of a symbol, or text (length > 0)
// that becomes spaces.
struct edit {
	const char *at; // in the original
	size_t length;
};

struct reader {
	struct edit *edits;
	size_t edit_count;
	char **names;
	size_t name_count;
};

// fetch reads bytes that may not be there.
static bool fetch(struct source s, uint64_t offset, void *to, size_t size)
{
	if (offset > s.size || size > s.size - offset)
		return false;
	struct iovec local = {to, size}, remote = {(char *)(uintptr_t)s.at + offset, size};
	return size == 0 || process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)size;
}

// obtain reads bytes into memory that the caller frees, with a zero behind them.
static void *obtain(struct source s, uint64_t offset, uint64_t size)
{
	if (offset > s.size || size > s.size - offset)
		return NULL;
	char *p = malloc(size + 1);
	if (!p)
		return NULL;
	p[size] = 0;
	if (fetch(s, offset, p, size))
		return p;
	free(p);
	return NULL;
}

static bool add_edit(struct reader *r, const char *at, size_t length)
{
	if (r->edit_count == MOST_MARKS)
		return false;
	struct edit *all = realloc(r->edits, (r->edit_count + 1) * sizeof *all);
	if (!all)
		return false;
	r->edits = all;
	all[r->edit_count++] = (struct edit){at, length};
	return true;
}

// add_name adds one that isn't there: each entry of a fatbin has the same ones.
static bool add_name(struct reader *r, const char *name, size_t length)
{
	if (length == 0 || length > LONGEST || r->name_count == MOST_NAMES)
		return false;
	for (size_t i = 0; i < r->name_count; i++)
		if (strlen(r->names[i]) == length && !memcmp(r->names[i], name, length))
			return true;
	char **all = realloc(r->names, (r->name_count + 1) * sizeof *all);
	if (!all)
		return false;
	r->names = all;
	all[r->name_count] = strndup(name, length);
	return all[r->name_count] && ++r->name_count;
}

static bool unread(struct reader *r)
{
	for (size_t i = 0; i < r->name_count; i++)
		free(r->names[i]);
	free(r->names);
	free(r->edits);
	*r = (struct reader){0};
	return false;
}

// Cubins.

static bool marked(const Elf64_Sym *s)
{
	return ELF64_ST_TYPE(s->st_info) == STT_OBJECT && (s->st_other & STO_CUDA_MANAGED);
}

// inside tells whether a variable is where one can be: in a section that is
// written at run time.
static bool inside(const Elf64_Sym *s, const Elf64_Shdr *sections, size_t count)
{
	if (s->st_shndx == SHN_UNDEF || s->st_shndx >= count || s->st_size == 0)
		return false;
	const Elf64_Shdr *h = &sections[s->st_shndx];
	return (h->sh_type == SHT_PROGBITS || h->sh_type == SHT_NOBITS) && (h->sh_flags & SHF_WRITE) &&
	       s->st_value <= h->sh_size && s->st_size <= h->sh_size - s->st_value;
}

static bool read_marks(struct reader *r, struct source s, const Elf64_Shdr *table, const Elf64_Sym *symbols,
		       const Elf64_Shdr *sections, size_t count)
{
	size_t n = table->sh_size / sizeof *symbols;
	char *names = NULL;
	bool good = true;
	for (size_t i = 0; good && i < n; i++) {
		if (!marked(&symbols[i]))
			continue;
		const Elf64_Shdr *strings = table->sh_link < count ? &sections[table->sh_link] : NULL;
		if (!names && strings && strings->sh_type == SHT_STRTAB)
			names = obtain(s, strings->sh_offset, strings->sh_size);
		good = names && symbols[i].st_name < strings->sh_size && inside(&symbols[i], sections, count) &&
		       add_name(r, names + symbols[i].st_name, strlen(names + symbols[i].st_name)) &&
		       add_edit(r, s.at + table->sh_offset + i * sizeof *symbols + offsetof(Elf64_Sym, st_other), 0);
	}
	free(names);
	return good;
}

static bool read_symbols(struct reader *r, struct source s, const Elf64_Shdr *table, const Elf64_Shdr *sections, size_t count)
{
	if (table->sh_entsize != sizeof(Elf64_Sym) || table->sh_size % sizeof(Elf64_Sym) != 0)
		return false;
	Elf64_Sym *symbols = obtain(s, table->sh_offset, table->sh_size);
	bool good = symbols && read_marks(r, s, table, symbols, sections, count);
	free(symbols);
	return good;
}

// extend makes *end at least that of some bytes of the file.
static bool extend(size_t *end, size_t limit, uint64_t offset, uint64_t size)
{
	if (offset > limit || size > limit - offset)
		return false;
	*end = offset + size > *end ? offset + size : *end;
	return true;
}

// read_elf reads a cubin, and says where it ends.
static bool read_elf(struct reader *r, struct source s, size_t *end)
{
	Elf64_Ehdr h;
	*end = sizeof h;
	if (!fetch(s, 0, &h, sizeof h) || memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 ||
	    h.e_ident[EI_DATA] != ELFDATA2LSB || h.e_machine != EM_CUDA || h.e_shnum == 0 || h.e_shentsize != sizeof(Elf64_Shdr) ||
	    (h.e_phnum > 0 && h.e_phentsize != sizeof(Elf64_Phdr)))
		return false;
	if (!extend(end, s.size, h.e_shoff, (uint64_t)h.e_shnum * sizeof(Elf64_Shdr)) ||
	    (h.e_phnum > 0 && !extend(end, s.size, h.e_phoff, (uint64_t)h.e_phnum * sizeof(Elf64_Phdr))))
		return false;
	Elf64_Shdr *sections = obtain(s, h.e_shoff, (uint64_t)h.e_shnum * sizeof *sections);
	bool good = sections;
	for (size_t i = 0; good && i < h.e_shnum; i++)
		if (sections[i].sh_type != SHT_NOBITS && sections[i].sh_type != SHT_NULL)
			good = extend(end, s.size, sections[i].sh_offset, sections[i].sh_size);
	for (size_t i = 0; good && i < h.e_shnum; i++)
		if (sections[i].sh_type == SHT_SYMTAB)
			good = read_symbols(r, s, &sections[i], sections, h.e_shnum);
	free(sections);
	return good;
}

// PTX.

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

// skip goes over spaces and comments.
static const char *skip(const char *p)
{
	for (;;) {
		if (isspace((unsigned char)*p)) {
			p++;
		} else if (p[0] == '/' && p[1] == '/') {
			p += strcspn(p, "\n");
		} else if (p[0] == '/' && p[1] == '*') {
			const char *end = strstr(p + 2, "*/");
			p = end ? end + 2 : p + strlen(p);
		} else {
			return p;
		}
	}
}

// word says how long the word at p is; 0 if there is none.
static size_t word(const char *p)
{
	size_t n = 0;
	while (is_word(p[n]))
		n++;
	return n;
}

static bool is(const char *p, size_t n, const char *what)
{
	return n == strlen(what) && !memcmp(p, what, n);
}

// attribute reads "(.managed)" behind ".attribute". Other attributes that stand
// beside it are not understood.
static const char *attribute(const char *p, bool *managed, bool *good)
{
	size_t n;
	*managed = false;
	p = skip(p);
	*good = *p == '(';
	for (p += *good; *good && *p != ')'; p = skip(p)) {
		p = skip(p);
		n = word(p);
		if (is(p, n, ".managed"))
			*managed = true;
		else if (*managed || !*p)
			*good = false;
		p += n ? n : *p != 0 && *p != ')';
		if (*managed && *skip(p) != ')')
			*good = false;
	}
	return p + *good;
}

// declared reads the names that a declaration declares, from behind its attribute.
static bool declared(struct reader *r, const char *p)
{
	int depth = 0;
	bool name = true; // one is awaited
	size_t found = 0;
	for (;;) {
		p = skip(p);
		size_t n = word(p);
		if (n && name && depth == 0 && is(p, n, ".align")) {
			p = skip(p + n);
			p += word(p);
		} else if (n && name && depth == 0 && *p != '.') {
			if (!add_name(r, p, n))
				return false;
			found++;
			name = false;
			p += n;
		} else if (n) {
			p += n;
		} else if (*p == '"' || !*p) {
			return false;
		} else if (*p == ';' && depth == 0) {
			return found > 0;
		} else {
			depth += (*p == '{' || *p == '[') - (*p == '}' || *p == ']');
			name = name || (*p == ',' && depth == 0);
			p++;
		}
	}
}

// read_text reads PTX, of which `text` is a copy that ends with a zero.
static bool read_text(struct reader *r, const char *at, const char *text)
{
	for (const char *p = skip(text); *p; p = skip(p)) {
		size_t n = word(p);
		if (*p == '"') {
			const char *end = strchr(p + 1, '"');
			if (!end)
				return false;
			p = end + 1;
			continue;
		}
		const char *from = p;
		p += n ? n : 1;
		if (!is(from, n, ".attribute"))
			continue;
		bool managed, good;
		p = attribute(p, &managed, &good);
		if (!good || (managed && (!declared(r, p) || !add_edit(r, at + (from - text), (size_t)(p - from)))))
			return false;
	}
	return true;
}

// read_ptx reads text that is as long as its entry, or ends before that.
static bool read_ptx(struct reader *r, struct source s)
{
	char *text = obtain(s, 0, s.size);
	bool good = text && read_text(r, s.at, text);
	free(text);
	return good;
}

// measure finds the end of text of which nothing else tells it. It reads page by
// page: what is behind the end may not be there.
static bool measure(struct source s, size_t *length)
{
	char page[PAGE];
	for (size_t at = 0, n; at < s.size; at += n) {
		n = PAGE - ((uintptr_t)s.at + at) % PAGE;
		n = n < s.size - at ? n : s.size - at;
		if (!fetch(s, at, page, n))
			return false;
		for (size_t i = 0; i < n; i++) {
			if (page[i] == 0) {
				*length = at + i;
				return true;
			}
			// What is no text is none of the images that we know.
			if ((unsigned char)page[i] < ' ' && !isspace((unsigned char)page[i]))
				return false;
		}
	}
	return false;
}

// Fatbins.

static bool compressed(const struct entry *e)
{
	return e->compressed != 0 || (e->flags & (FATBIN_LZ4 | FATBIN_ZSTD));
}

static bool read_entry(struct reader *r, struct source s, const struct entry *e)
{
	size_t end;
	char magic[SELFMAG] = "";
	if (compressed(e))
		return true;
	if (e->kind == FATBIN_PTX)
		return read_ptx(r, s);
	// In the place of a cubin there may be other things.
	if (e->kind != FATBIN_ELF || !fetch(s, 0, magic, sizeof magic) || memcmp(magic, ELFMAG, SELFMAG) != 0)
		return true;
	return read_elf(r, s, &end);
}

static bool read_fatbin(struct reader *r, struct source s, size_t *end)
{
	struct fatbin f;
	struct entry e;
	if (!fetch(s, 0, &f, sizeof f) || f.magic != (uint32_t)FATBIN_MAGIC || f.version != 1 || f.header < sizeof f)
		return false;
	*end = 0;
	if (!extend(end, s.size, f.header, f.size))
		return false;
	for (size_t at = f.header; at < *end;) {
		if (*end - at < sizeof e || !fetch(s, at, &e, sizeof e) || e.header < sizeof e || e.header > *end - at ||
		    e.size > *end - at - e.header)
			return false;
		if (!read_entry(r, (struct source){s.at + at + e.header, e.size}, &e))
			return false;
		at += e.header + e.size;
	}
	return true;
}

// read_image reads any of them, and says where it ends.
static bool read_image(struct reader *r, struct source s, size_t *end)
{
	uint32_t magic;
	if (!fetch(s, 0, &magic, sizeof magic))
		return false;
	if (magic == (uint32_t)FATBIN_MAGIC)
		return read_fatbin(r, s, end);
	if (!memcmp(&magic, ELFMAG, SELFMAG))
		return read_elf(r, s, end);
	if (!measure(s, end))
		return false;
	s.size = *end;
	*end += 1;
	return read_ptx(r, s);
}

// apply makes the copy. What the program has written meanwhile changes nothing of
// where it is written to.
static bool apply(const struct reader *r, struct source s, const struct wrapper *w, size_t end, struct image *image)
{
	size_t before = w ? 64 : 0; // aligned as a fatbin wants it
	image->size = (before + end + 63) / 64 * 64;
	char *p = aligned_alloc(64, image->size);
	if (!p)
		return false;
	char *copy = p + before;
	memset(p, 0, image->size);
	if (!fetch(s, 0, copy, end)) {
		free(p);
		return false;
	}
	for (size_t i = 0; i < r->edit_count; i++) {
		char *at = copy + (r->edits[i].at - s.at);
		if (r->edits[i].length > 0)
			memset(at, ' ', r->edits[i].length);
		else
			*at &= ~STO_CUDA_MANAGED;
	}
	if (w) {
		struct wrapper mine = *w;
		mine.data = copy;
		memcpy(p, &mine, sizeof mine);
	}
	image->memory = image->code = p;
	return true;
}

bool image_unmark(const void *code, size_t size, struct image *image)
{
	struct source s = {code, size ? size : LIMIT};
	struct reader r = {0};
	struct wrapper w = {0};
	size_t end = 0;
	bool wrapped = fetch(s, 0, &w, sizeof w) && w.magic == WRAPPER_MAGIC;
	*image = (struct image){0};
	if (wrapped) {
		uint32_t magic = 0;
		s = (struct source){w.data, LIMIT};
		if (size || (w.version != 1 && w.version != 2) || !fetch(s, 0, &magic, sizeof magic) || magic != (uint32_t)FATBIN_MAGIC)
			return false;
	}
	if (!code || !read_image(&r, s, &end) || r.edit_count == 0 || !apply(&r, s, wrapped ? &w : NULL, end, image))
		return unread(&r);
	free(r.edits);
	image->names = r.names;
	image->count = r.name_count;
	return true;
}

void image_free(struct image *image)
{
	for (size_t i = 0; i < image->count; i++)
		free(image->names[i]);
	free(image->names);
	free(image->memory);
	*image = (struct image){0};
}
