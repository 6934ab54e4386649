// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Functions of other libraries that an adapter stands in front of.
 *
 * Without the adapter a reference leads to the first definition in the global
 * scope, or else to one in the local scope of the library that refers to it.
 * dlsym(3) finds both, the latter by the calling library, which the return
 * address shows. The version that it refers to is in its relocations.
 *
 * Several adapters may stand in front of one function, and call each other in
 * the order of the global scope. The last of them may be called by another one
 * whose own definition is not the one to be found.
 *
 * A library that was found is never unloaded again, since its functions are
 * remembered.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "next.h"

/**
 * struct object - Dynamic section of a loaded library
 * @base: Address that those in the file are relative to
 * @symbols: Its dynamic symbols
 * @strings: Their names
 * @versions: Index of each symbol's version, or NULL
 * @needed: Versions that it needs, or NULL
 * @relocs: Relocations of data, and of the procedure linkage table
 * @sizes: Bytes of both
 */
struct object {
	uintptr_t base;
	const Elf64_Sym *symbols;
	const char *strings;
	const Elf64_Half *versions;
	const char *needed;
	const Elf64_Rela *relocs[2];
	size_t sizes[2];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Each library that this file is a part of exports it. */
EXPORT const char memreg_stands_in_front;

/*
 * Dynamic sections
 */

/* The dynamic linker has relocated most addresses in dynamic sections. */
static const void *at(const struct object *object, uintptr_t address)
{
	return (const void *)(address < object->base ? object->base + address :
						       address);
}

static void read_entry(struct object *object, const Elf64_Dyn *dyn)
{
	const void *address = at(object, dyn->d_un.d_ptr);

	switch (dyn->d_tag) {
	case DT_SYMTAB:
		object->symbols = address;
		break;
	case DT_STRTAB:
		object->strings = address;
		break;
	case DT_VERSYM:
		object->versions = address;
		break;
	case DT_VERNEED:
		object->needed = address;
		break;
	case DT_RELA:
		object->relocs[0] = address;
		break;
	case DT_RELASZ:
		object->sizes[0] = dyn->d_un.d_val;
		break;
	case DT_JMPREL:
		object->relocs[1] = address;
		break;
	case DT_PLTRELSZ:
		object->sizes[1] = dyn->d_un.d_val;
		break;
	}
}

static struct object read_object(uintptr_t base, const Elf64_Dyn *dyn)
{
	struct object object = { .base = base };

	for (; dyn && dyn->d_tag != DT_NULL; dyn++)
		read_entry(&object, dyn);
	return object;
}

static const Elf64_Sym *symbol_of(const struct object *object,
				  const Elf64_Rela *reloc)
{
	return &object->symbols[ELF64_R_SYM(reloc->r_info)];
}

/* The relocation by which a library refers to a function, or NULL */
static const Elf64_Rela *reference(const struct object *object,
				   const char *name)
{
	const Elf64_Rela *reloc, *end;
	unsigned int i;

	if (!object->symbols || !object->strings)
		return NULL;
	for (i = 0; i < 2; i++) {
		reloc = object->relocs[i];
		end = reloc + object->sizes[i] / sizeof(*reloc);
		for (; reloc && reloc < end; reloc++)
			if (ELF64_R_SYM(reloc->r_info) &&
			    !strcmp(object->strings +
				    symbol_of(object, reloc)->st_name, name))
				return reloc;
	}
	return NULL;
}

/* The name of a version that a library needs, by its index */
static const char *version_name(const struct object *object, unsigned int index)
{
	const Elf64_Verneed *need = (const void *)object->needed;
	const Elf64_Vernaux *aux;
	unsigned int i;

	while (need) {
		aux = (const void *)((const char *)need + need->vn_aux);
		for (i = 0; i < need->vn_cnt; i++) {
			if (aux->vna_other == index)
				return object->strings + aux->vna_name;
			aux = (const void *)((const char *)aux + aux->vna_next);
		}
		need = need->vn_next ? (const void *)((const char *)need +
						      need->vn_next) : NULL;
	}
	return NULL;
}

/* The version of a function that a library refers to, or NULL */
static const char *version_of(const struct link_map *map, const char *name)
{
	struct object object = read_object(map->l_addr, map->l_ld);
	const Elf64_Rela *reloc = reference(&object, name);

	if (!reloc || !object.versions)
		return NULL;
	return version_name(&object,
			    object.versions[ELF64_R_SYM(reloc->r_info)] &
			    0x7fff);
}

/*
 * Finding
 */

static void *base_of(const void *address)
{
	Dl_info info;

	return dladdr(address, &info) ? info.dli_fbase : NULL;
}

/* Is an address in this library? */
static bool is_own(const void *address)
{
	return base_of(address) == base_of((const void *)&lock);
}

static void *symbol(void *handle, const char *name, const char *version)
{
	void *found = version ? dlvsym(handle, name, version) : NULL;

	found = found ?: dlsym(handle, name);
	return found && !is_own(found) ? found : NULL;
}

static const struct link_map *map_of(const void *address)
{
	const struct link_map *map;
	Dl_info info;

	return dladdr1(address, &info, (void **)(uintptr_t)&map,
		       RTLD_DL_LINKMAP) ? map : NULL;
}

/* Is an address in a library that stands in front of others, as this one? */
static bool stands_in_front(const void *address)
{
	const struct link_map *map = map_of(address);
	void *handle = map ? dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD) :
			     NULL;
	bool found;

	if (!handle)
		return false;
	found = base_of(dlsym(handle, "memreg_stands_in_front")) ==
		base_of(address);
	dlclose(handle);
	return found;
}

static void *symbol_in(const char *path, const char *name, const char *version)
{
	void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD), *found;

	if (!handle)
		return NULL;
	found = symbol(handle, name, version);
	if (stands_in_front(found))
		found = NULL;
	/* A library in which something was found stays. */
	if (!found)
		dlclose(handle);
	return found;
}

/*
 * Names of all loaded libraries: dlopen(3) must not be called in the callback
 * that lists them.
 */
struct names {
	char **name;
	size_t count;
};

static int add_name(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct names *names = arg;
	char **name;

	(void)size;
	if (!info->dlpi_name || !info->dlpi_name[0])
		return 0;
	name = reallocarray(names->name, names->count + 1, sizeof(*name));
	if (!name)
		return 1;
	names->name = name;
	name[names->count] = strdup(info->dlpi_name);
	if (name[names->count])
		names->count++;
	return 0;
}

static void free_names(struct names *names)
{
	while (names->count)
		free(names->name[--names->count]);
	free(names->name);
}

static void *symbol_anywhere(const char *name, const char *version)
{
	struct names names = {};
	void *found = NULL;
	size_t i;

	dl_iterate_phdr(add_name, &names);
	for (i = 0; i < names.count && !found; i++)
		found = symbol_in(names.name[i], name, version);
	free_names(&names);
	return found;
}

void *next_find(const char *name, const void *caller)
{
	const struct link_map *map = map_of(caller);
	const char *version = map ? version_of(map, name) : NULL;
	void *found = symbol(RTLD_NEXT, name, version);

	if (!found && map && map->l_name[0])
		found = symbol_in(map->l_name, name, version);
	return found ?: symbol_anywhere(name, version);
}

void *next_in(const void *address, const char *name)
{
	const struct link_map *map = map_of(address);

	return map ? symbol_in(map->l_name, name, NULL) : NULL;
}

void *next_beside(const char *name, const void *beside, const char *other)
{
	struct names names = {};
	void *found = NULL;
	size_t i;

	dl_iterate_phdr(add_name, &names);
	for (i = 0; i < names.count && !found; i++)
		if (symbol_in(names.name[i], name, NULL) == beside)
			found = symbol_in(names.name[i], other, NULL);
	free_names(&names);
	return found;
}

const char *next_path(const void *address)
{
	const struct link_map *map = map_of(address);

	return map && map->l_name[0] ? map->l_name : "the program";
}

/* Remember what was found, if there is room. */
static void *remember(struct next *next, const void *caller)
{
	void *found = next_find(next->name, caller);
	unsigned int n;

	pthread_mutex_lock(&lock);
	n = next->count;
	if (found && n < NEXT_CALLERS) {
		next->known[n].caller = caller;
		next->known[n].found = found;
		__atomic_store_n(&next->count, n + 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
	return found;
}

void *next_of(struct next *next, const void *caller)
{
	unsigned int i, n = __atomic_load_n(&next->count, __ATOMIC_ACQUIRE);

	for (i = 0; i < n; i++)
		if (next->known[i].caller == caller)
			return next->known[i].found;
	return remember(next, caller);
}

/*
 * Libraries whose calls don't come here
 */

/**
 * struct bypass - What is searched for
 * @name: The function
 * @path: The library that was found, which is not unloaded
 * @open: A reference is not resolved yet
 * @own: This library
 */
struct bypass {
	const char *name;
	const char *path;
	bool open;
	struct dl_phdr_info own;
};

static bool has_address(const struct dl_phdr_info *info, uintptr_t address)
{
	const Elf64_Phdr *phdr;
	unsigned int i;

	for (i = 0; i < info->dlpi_phnum; i++) {
		phdr = &info->dlpi_phdr[i];
		if (phdr->p_type == PT_LOAD &&
		    address - (info->dlpi_addr + phdr->p_vaddr) <
		    phdr->p_memsz)
			return true;
	}
	return false;
}

static const Elf64_Dyn *dynamic_of(const struct dl_phdr_info *info)
{
	unsigned int i;

	for (i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			return (const void *)(info->dlpi_addr +
					      info->dlpi_phdr[i].p_vaddr);
	return NULL;
}

/*
 * Does a library's reference lead elsewhere? As long as it leads into the
 * library itself, but not to a definition there, it is not resolved yet.
 */
static int leads_elsewhere(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct object object = read_object(info->dlpi_addr, dynamic_of(info));
	struct bypass *bypass = arg;
	const Elf64_Rela *reloc = reference(&object, bypass->name);
	const Elf64_Sym *own;
	uintptr_t leads_to;

	(void)size;
	if (!reloc)
		return 0;
	leads_to = *(const uintptr_t *)(object.base + reloc->r_offset);
	own = symbol_of(&object, reloc);
	if (has_address(info, leads_to) &&
	    (own->st_shndx == SHN_UNDEF ||
	     leads_to != object.base + own->st_value)) {
		bypass->open = true;
		return 0;
	}
	if (has_address(&bypass->own, leads_to))
		return 0;
	bypass->path = info->dlpi_name;
	return 1;
}

/*
 * Find this library. The callback above can't ask dladdr(3) whose an address
 * is: dlopen(3) takes the locks of both in the other order.
 */
static int find_own(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct bypass *bypass = arg;

	(void)size;
	if (!has_address(info, (uintptr_t)find_own))
		return 0;
	bypass->own = *info;
	return 1;
}

static int count_loads(struct dl_phdr_info *info, size_t size, void *loads)
{
	(void)size;
	*(unsigned long *)loads = (unsigned long)info->dlpi_adds;
	return 1;
}

unsigned long next_loads(void)
{
	unsigned long loads = 0;

	dl_iterate_phdr(count_loads, &loads);
	return loads;
}

enum next_calls next_calls_of(const char *name, const char **path)
{
	struct bypass bypass = { .name = name };

	dl_iterate_phdr(find_own, &bypass);
	if (!dl_iterate_phdr(leads_elsewhere, &bypass))
		return bypass.open ? NEXT_OPEN : NEXT_HERE;
	*path = bypass.path && bypass.path[0] ? bypass.path : "the program";
	return NEXT_ELSEWHERE;
}
