#include "text/bpe.h"

#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static size_t pair_slot(const struct ddl_bpe *bpe, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    key = (key ^ key >> 29) * 0x9e3779b97f4a7c15u;
    return (size_t)(key >> (64 - bpe->bits));
}

/* Returns the pair's slot, or the empty slot where it would be inserted. */
static struct ddl_pair_slot *pair_find(const struct ddl_bpe *bpe, int32_t left, int32_t right)
{
    size_t mask = ((size_t)1 << bpe->bits) - 1;
    for (size_t i = pair_slot(bpe, left, right);; i = (i + 1) & mask) {
        struct ddl_pair_slot *slot = &bpe->slots[i];
        if (slot->left < 0 || (slot->left == left && slot->right == right))
            return slot;
    }
}

ddl_status ddl_bpe_init(struct ddl_bpe *bpe, const struct ddl_merge *merges, size_t n, size_t *duplicate,
                        struct ddl_error *err)
{
    assert(n < UINT32_MAX / 4);
    for (bpe->bits = 4; ((size_t)1 << bpe->bits) < 2 * n;)
        bpe->bits++;
    size_t slots = (size_t)1 << bpe->bits;
    bpe->slots = ddl_mem_alloc(slots * sizeof *bpe->slots);
    if (!bpe->slots)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu merges", n);
    for (size_t i = 0; i < slots; i++)
        bpe->slots[i].left = -1;
    for (size_t rank = 0; rank < n; rank++) {
        struct ddl_pair_slot *slot = pair_find(bpe, merges[rank].left, merges[rank].right);
        if (slot->left >= 0) {
            *duplicate = rank;
            return ddl_error_set(err, DDL_E_FORMAT, "duplicate merge %zu", rank);
        }
        *slot =
            (struct ddl_pair_slot){ merges[rank].left, merges[rank].right, (uint32_t)rank, merges[rank].id };
    }
    return DDL_OK;
}

void ddl_bpe_free(struct ddl_bpe *bpe)
{
    ddl_mem_free(bpe->slots);
    bpe->slots = NULL;
}

ddl_status ddl_ids_reserve(struct ddl_ids *ids, size_t n, struct ddl_error *err)
{
    if (ids->capacity - ids->n >= n)
        return DDL_OK;
    size_t wanted, capacity = ids->capacity + ids->capacity / 2, bytes;
    int32_t *grown = NULL;
    if (ddl_size_add(ids->n, n, &wanted)) {
        if (capacity < wanted)
            capacity = wanted;
        if (ddl_size_mul(capacity, sizeof *grown, &bytes))
            grown = realloc(ids->ids, bytes);
    }
    if (!grown)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu more token ids", n);
    ids->ids = grown;
    ids->capacity = capacity;
    return DDL_OK;
}

void ddl_ids_free(struct ddl_ids *ids)
{
    free(ids->ids);
    *ids = (struct ddl_ids){ 0 };
}

/* A part of a short piece, and its merge with the part to its right; rank UINT32_MAX if there is none. */
struct short_part {
    uint32_t rank;
    int32_t id, merged;
};

static void look_up(const struct ddl_bpe *bpe, struct short_part *p, const struct short_part *end)
{
    p->rank = UINT32_MAX;
    if (p + 1 == end)
        return;
    const struct ddl_pair_slot *slot = pair_find(bpe, p->id, p[1].id);
    if (slot->left < 0)
        return;
    p->rank = slot->rank;
    p->merged = slot->id;
}

size_t ddl_bpe_scan(const struct ddl_bpe *bpe, const char *piece, size_t size, int32_t *out)
{
    assert(size <= DDL_BPE_SCAN);
    struct short_part part[DDL_BPE_SCAN], *end = part + size;
    for (size_t i = 0; i < size; i++)
        part[i].id = bpe->byte_id[(unsigned char)piece[i]];
    for (struct short_part *p = part; p < end; p++)
        look_up(bpe, p, end);
    while (end > part) {
        struct short_part *best = part;
        for (struct short_part *p = part + 1; p < end; p++) {
            if (p->rank < best->rank)
                best = p;
        }
        if (best->rank == UINT32_MAX)
            break;
        best->id = best->merged;
        end--;
        memmove(best + 1, best + 2, (size_t)(end - best - 1) * sizeof *best);
        look_up(bpe, best, end);
        if (best > part)
            look_up(bpe, best - 1, end);
    }
    for (size_t i = 0; part + i < end; i++)
        out[i] = part[i].id;
    return (size_t)(end - part);
}

/* A part of a long piece, in a doubly linked list by index; id < 0 after it was merged into its left
 * neighbor. */
struct part {
    int32_t id;
    size_t left, right; /* neighbors; `none` at the ends */
};

/* A merge that was possible when it was pushed; validated again when it is popped. */
struct candidate {
    uint32_t rank;
    int32_t id;
    size_t at;
};

static const size_t none = SIZE_MAX;

struct heap {
    struct candidate *item;
    size_t n;
};

static bool earlier(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(struct heap *heap, struct candidate c)
{
    size_t i = heap->n++;
    for (; i && earlier(&c, &heap->item[(i - 1) / 2]); i = (i - 1) / 2)
        heap->item[i] = heap->item[(i - 1) / 2];
    heap->item[i] = c;
}

static struct candidate heap_pop(struct heap *heap)
{
    struct candidate top = heap->item[0], last = heap->item[--heap->n];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= heap->n)
            break;
        if (child + 1 < heap->n && earlier(&heap->item[child + 1], &heap->item[child]))
            child++;
        if (!earlier(&heap->item[child], &last))
            break;
        heap->item[i] = heap->item[child];
        i = child;
    }
    heap->item[i] = last;
    return top;
}

/* Pushes the merge of the part at `at` with its right neighbor, if there is one. */
static void consider(const struct ddl_bpe *bpe, const struct part *part, size_t at, struct heap *heap)
{
    if (at == none || part[at].right == none)
        return;
    const struct ddl_pair_slot *slot = pair_find(bpe, part[at].id, part[part[at].right].id);
    if (slot->left >= 0)
        heap_push(heap, (struct candidate){ slot->rank, slot->id, at });
}

static void merge_parts(const struct ddl_bpe *bpe, struct part *part, struct heap *heap)
{
    while (heap->n) {
        struct candidate c = heap_pop(heap);
        struct part *p = &part[c.at];
        if (p->id < 0 || p->right == none)
            continue;
        const struct ddl_pair_slot *now = pair_find(bpe, p->id, part[p->right].id);
        if (now->left < 0 || now->rank != c.rank)
            continue;
        struct part *merged = &part[p->right];
        p->id = c.id;
        merged->id = -1;
        p->right = merged->right;
        if (p->right != none)
            part[p->right].left = c.at;
        consider(bpe, part, p->left, heap);
        consider(bpe, part, c.at, heap);
    }
}

ddl_status ddl_bpe_heap(const struct ddl_bpe *bpe, const char *piece, size_t size, struct ddl_ids *out,
                        struct ddl_error *err)
{
    ddl_status status = ddl_ids_reserve(out, size, err);
    if (status)
        return status;
    /* At most size - 1 candidates initially; each of the at most size - 1 merges pops one and pushes two. */
    size_t part_bytes, heap_bytes;
    struct part *part = NULL;
    struct heap heap = { 0 };
    if (ddl_size_mul(size, sizeof *part, &part_bytes) &&
        ddl_size_mul(2 * size, sizeof *heap.item, &heap_bytes)) {
        part = ddl_mem_alloc(part_bytes);
        heap.item = ddl_mem_alloc(heap_bytes);
    }
    if (!part || !heap.item) {
        status = ddl_error_set(err, DDL_E_MEMORY, "out of memory for a piece of %zu bytes", size);
    } else {
        for (size_t i = 0; i < size; i++)
            part[i] = (struct part){ bpe->byte_id[(unsigned char)piece[i]], i ? i - 1 : none,
                                     i + 1 < size ? i + 1 : none };
        for (size_t i = 0; i < size; i++)
            consider(bpe, part, i, &heap);
        merge_parts(bpe, part, &heap);
        for (size_t i = 0; i < size; i++) {
            if (part[i].id >= 0)
                out->ids[out->n++] = part[i].id;
        }
    }
    ddl_mem_free(part);
    ddl_mem_free(heap.item);
    return status;
}

ddl_status ddl_bpe_encode(const struct ddl_bpe *bpe, const char *piece, size_t size, struct ddl_ids *out,
                          struct ddl_error *err)
{
    if (size > DDL_BPE_SCAN)
        return ddl_bpe_heap(bpe, piece, size, out, err);
    ddl_status status = ddl_ids_reserve(out, size, err);
    if (!status)
        out->n += ddl_bpe_scan(bpe, piece, size, out->ids + out->n);
    return status;
}
