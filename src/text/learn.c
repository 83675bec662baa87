/* BPE training with a lazily updated heap. Pair occurrences are pushed onto the heap in batches: one for
 * each pair of the initial text, then, after each merge, one for each pair that the merge created. A batch
 * stores the words that contain its pair and the pair's count at the time of the push; a stale count is
 * corrected when the batch reaches the top, which is sufficient because counts of existing pairs only
 * decrease. The symbols between two token boundaries are merged in the same way wherever they occur.
 * Therefore each token results from exactly one merge, and each pair is pushed once and never created again
 * after its merge. */
#include "text/learn.h"

#include "base/mem.h"

#include <stdlib.h>

struct span {
    size_t start; /* index of its first symbol */
    uint32_t n;
    int64_t count;
};

/* The words that contain a pair. Free of duplicates as long as words are added in order. */
struct places {
    uint32_t *word;
    size_t n, capacity;
};

struct pair {
    uint64_t key;
    int64_t count;
    struct places pending; /* words of the batch being collected */
};

struct batch {
    int64_t count;
    uint64_t key;
    size_t pair;
    struct places places;
};

struct ddl_learner {
    int32_t *symbols;
    struct span *words;
    size_t n_words;
    struct pair *pairs;
    size_t n_pairs, pairs_capacity;
    uint32_t *slots; /* open addressing by key: 1 + index in pairs; 0 is empty */
    unsigned bits;
    size_t *touched; /* pairs with pending words */
    size_t n_touched, touched_capacity;
    struct batch *heap;
    size_t n_heap, heap_capacity;
    struct batch top; /* returned by ddl_learner_best, owned until merge */
};

/* Returns the array, reallocated if necessary to hold one more element; NULL if out of memory. */
static void *reserve_one(void *array, size_t n, size_t *capacity, size_t element)
{
    if (n < *capacity)
        return array;
    size_t wanted = 2 * *capacity + 4, bytes;
    void *grown = ddl_size_mul(wanted, element, &bytes) ? realloc(array, bytes) : NULL;
    if (grown)
        *capacity = wanted;
    return grown;
}

static size_t find_slot(const struct ddl_learner *l, uint64_t key)
{
    size_t mask = ((size_t)1 << l->bits) - 1;
    size_t i = (size_t)(((key ^ key >> 29) * 0x9e3779b97f4a7c15u) >> (64 - l->bits));
    while (l->slots[i] && l->pairs[l->slots[i] - 1].key != key)
        i = (i + 1) & mask;
    return i;
}

static bool grow_slots(struct ddl_learner *l, unsigned bits)
{
    uint32_t *slots = calloc((size_t)1 << bits, sizeof *slots);
    if (!slots)
        return false;
    free(l->slots);
    l->slots = slots;
    l->bits = bits;
    for (size_t i = 0; i < l->n_pairs; i++)
        l->slots[find_slot(l, l->pairs[i].key)] = (uint32_t)(i + 1);
    return true;
}

/* Returns the pair with that key, inserted if it is new; NULL if out of memory. */
static struct pair *pair_of(struct ddl_learner *l, uint64_t key)
{
    size_t slot = find_slot(l, key);
    if (l->slots[slot])
        return &l->pairs[l->slots[slot] - 1];
    struct pair *pairs = reserve_one(l->pairs, l->n_pairs, &l->pairs_capacity, sizeof *pairs);
    if (!pairs)
        return NULL;
    l->pairs = pairs;
    if (l->n_pairs >= UINT32_MAX - 1)
        return NULL;
    if ((l->n_pairs + 1) * 2 > (size_t)1 << l->bits) {
        if (!grow_slots(l, l->bits + 1))
            return NULL;
        slot = find_slot(l, key);
    }
    l->pairs[l->n_pairs] = (struct pair){ .key = key };
    l->slots[slot] = (uint32_t)++l->n_pairs;
    return &l->pairs[l->n_pairs - 1];
}

/* Adds (sign 1) or removes (sign -1) one occurrence of the pair in a word. */
static bool change(struct ddl_learner *l, int32_t left, int32_t right, uint32_t word, int sign)
{
    struct pair *pair = pair_of(l, DDL_PAIR(left, right));
    if (!pair)
        return false;
    pair->count += sign * l->words[word].count;
    struct places *p = &pair->pending;
    if (sign < 0 || (p->n && p->word[p->n - 1] == word))
        return true;
    if (p->n == 0) {
        size_t *touched = reserve_one(l->touched, l->n_touched, &l->touched_capacity, sizeof *touched);
        if (!touched)
            return false;
        l->touched = touched;
        l->touched[l->n_touched++] = (size_t)(pair - l->pairs);
    }
    uint32_t *places = reserve_one(p->word, p->n, &p->capacity, sizeof *places);
    if (!places)
        return false;
    p->word = places;
    p->word[p->n++] = word;
    return true;
}

static bool before(const struct batch *a, const struct batch *b)
{
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static bool push(struct ddl_learner *l, struct batch batch)
{
    struct batch *heap = reserve_one(l->heap, l->n_heap, &l->heap_capacity, sizeof *heap);
    if (!heap)
        return false;
    l->heap = heap;
    size_t i = l->n_heap++;
    for (; i && before(&batch, &l->heap[(i - 1) / 2]); i = (i - 1) / 2)
        l->heap[i] = l->heap[(i - 1) / 2];
    l->heap[i] = batch;
    return true;
}

/* Replaces the top of the heap by `batch` and sifts it down. */
static void sink(struct ddl_learner *l, struct batch batch)
{
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= l->n_heap)
            break;
        if (child + 1 < l->n_heap && before(&l->heap[child + 1], &l->heap[child]))
            child++;
        if (!before(&l->heap[child], &batch))
            break;
        l->heap[i] = l->heap[child];
        i = child;
    }
    l->heap[i] = batch;
}

static struct batch pop(struct ddl_learner *l)
{
    struct batch top = l->heap[0];
    if (--l->n_heap)
        sink(l, l->heap[l->n_heap]);
    return top;
}

/* Pushes the batches collected since the last call. */
static bool enter_batches(struct ddl_learner *l)
{
    for (size_t i = 0; i < l->n_touched; i++) {
        struct pair *pair = &l->pairs[l->touched[i]];
        if (pair->count <= 0)
            free(pair->pending.word);
        else if (!push(l, (struct batch){ pair->count, pair->key, l->touched[i], pair->pending }))
            return false;
        pair->pending = (struct places){ 0 };
    }
    l->n_touched = 0;
    return true;
}

static bool copy_words(struct ddl_learner *l, const struct ddl_words *words, const int32_t byte_id[256])
{
    size_t bytes;
    if (!ddl_size_mul(words->pool_size, sizeof *l->symbols, &bytes))
        return false;
    l->symbols = malloc(bytes + 1);
    l->words = malloc(words->n * sizeof *l->words + 1);
    if (!l->symbols || !l->words)
        return false;
    for (size_t i = 0; i < words->pool_size; i++)
        l->symbols[i] = byte_id[(unsigned char)words->pool[i]];
    l->n_words = words->n;
    for (size_t i = 0; i < words->n; i++)
        l->words[i] =
            (struct span){ words->words[i].offset, words->words[i].size, (int64_t)words->words[i].count };
    return true;
}

static bool count_pairs(struct ddl_learner *l)
{
    for (size_t w = 0; w < l->n_words; w++) {
        const int32_t *s = l->symbols + l->words[w].start;
        for (uint32_t i = 0; i + 1 < l->words[w].n; i++) {
            if (!change(l, s[i], s[i + 1], (uint32_t)w, 1))
                return false;
        }
    }
    return enter_batches(l);
}

struct ddl_learner *ddl_learner_new(const struct ddl_words *words, const int32_t byte_id[256])
{
    struct ddl_learner *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    if (grow_slots(l, 12) && copy_words(l, words, byte_id) && count_pairs(l))
        return l;
    ddl_learner_free(l);
    return NULL;
}

void ddl_learner_free(struct ddl_learner *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->n_pairs; i++)
        free(l->pairs[i].pending.word);
    for (size_t i = 0; i < l->n_heap; i++)
        free(l->heap[i].places.word);
    free(l->top.places.word);
    free(l->heap);
    free(l->touched);
    free(l->slots);
    free(l->pairs);
    free(l->words);
    free(l->symbols);
    free(l);
}

bool ddl_learner_best(struct ddl_learner *l, uint64_t *pair, uint64_t *count)
{
    while (l->n_heap) {
        int64_t now = l->pairs[l->heap[0].pair].count;
        if (l->heap[0].count != now) {
            struct batch corrected = l->heap[0];
            corrected.count = now;
            sink(l, corrected);
        } else if (now <= 0) {
            return false; /* the maximum is 0: no pair occurs any more */
        } else {
            l->top = pop(l);
            *pair = l->top.key;
            *count = (uint64_t)now;
            return true;
        }
    }
    return false;
}

/* Replaces the pair in one word, from left to right, and updates the counts of the adjacent pairs. */
static bool merge_in_word(struct ddl_learner *l, uint32_t word, int32_t left, int32_t right, int32_t id)
{
    struct span *w = &l->words[word];
    int32_t *s = l->symbols + w->start;
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n;) {
        if (s[i] != left || i + 1 == w->n || s[i + 1] != right) {
            s[n++] = s[i++];
            continue;
        }
        if (n && (!change(l, s[n - 1], left, word, -1) || !change(l, s[n - 1], id, word, 1)))
            return false;
        s[n++] = id;
        i += 2;
        if (i < w->n && (!change(l, right, s[i], word, -1) || !change(l, id, s[i], word, 1)))
            return false;
    }
    w->n = n;
    return true;
}

bool ddl_learner_merge(struct ddl_learner *l, int32_t id)
{
    int32_t left = (int32_t)(l->top.key >> 32), right = (int32_t)(l->top.key & UINT32_MAX);
    bool good = true;
    for (size_t i = 0; good && i < l->top.places.n; i++)
        good = merge_in_word(l, l->top.places.word[i], left, right, id);
    free(l->top.places.word);
    l->top = (struct batch){ 0 };
    return good && enter_batches(l);
}
