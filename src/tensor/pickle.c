#include "tensor/pickle.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* The opcodes that are read, by the names of Python's pickletools. */
enum opcode {
    MARK = '(',
    STOP = '.',
    POP = '0',
    POP_MARK = '1',
    BINFLOAT = 'G',
    BININT = 'J',
    BININT1 = 'K',
    BININT2 = 'M',
    NONE = 'N',
    BINPERSID = 'Q',
    REDUCE = 'R',
    BINSTRING = 'T',
    SHORT_BINSTRING = 'U',
    BINUNICODE = 'X',
    APPEND = 'a',
    BUILD = 'b',
    GLOBAL = 'c',
    APPENDS = 'e',
    BINGET = 'h',
    LONG_BINGET = 'j',
    BINPUT = 'q',
    LONG_BINPUT = 'r',
    SETITEM = 's',
    TUPLE = 't',
    SETITEMS = 'u',
    EMPTY_DICT = '}',
    EMPTY_LIST = ']',
    EMPTY_TUPLE = ')',
    BINBYTES = 'B',
    SHORT_BINBYTES = 'C',
    PROTO = 0x80,
    TUPLE1 = 0x85,
    TUPLE2 = 0x86,
    TUPLE3 = 0x87,
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    LONG1 = 0x8a,
    LONG4 = 0x8b,
    SHORT_BINUNICODE = 0x8c,
    BINUNICODE8 = 0x8d,
    BINBYTES8 = 0x8e,
    STACK_GLOBAL = 0x93,
    MEMOIZE = 0x94,
    FRAME = 0x95,
};

/* Values that are made once. */
enum { IS_NONE, IS_FALSE, IS_TRUE, IS_EMPTY_TUPLE, CONSTANTS };

static const uint32_t no_value = UINT32_MAX; /* in the stack: a mark; in the memo: a free place */

struct machine {
    const unsigned char *data;
    size_t size, at, opcode_at;
    const struct ddl_pickle_global *globals;
    size_t n_globals;
    const char *path;
    struct ddl_pickle out;
    size_t n_values, values_capacity, n_items, items_capacity;
    ddl_pickle_ref *stack, *memo;
    size_t n_stack, stack_capacity, memo_capacity, n_memoized;
    struct ddl_error *err;
};

/* ---- messages ---- */

static ddl_status malformed(const struct machine *m, const char *what)
{
    return ddl_error_set(m->err, DDL_E_FORMAT, "%s: the pickle is malformed at byte %zu: %s", m->path,
                         m->opcode_at, what);
}

static ddl_status no_memory(const struct machine *m)
{
    return ddl_error_set(m->err, DDL_E_MEMORY, "%s: out of memory for its pickle of %zu bytes", m->path,
                         m->size);
}

const char *ddl_pickle_kind_name(enum ddl_pickle_kind kind)
{
    static const char *const names[DDL_PICKLE_KINDS] = {
        [DDL_PICKLE_NONE] = "None",
        [DDL_PICKLE_BOOL] = "a boolean",
        [DDL_PICKLE_INT] = "an integer",
        [DDL_PICKLE_FLOAT] = "a float",
        [DDL_PICKLE_TEXT] = "a string",
        [DDL_PICKLE_TUPLE] = "a tuple",
        [DDL_PICKLE_LIST] = "a list",
        [DDL_PICKLE_DICT] = "a dict",
        [DDL_PICKLE_GLOBAL] = "a global",
        [DDL_PICKLE_CALL] = "an object",
        [DDL_PICKLE_PERSISTENT] = "a storage",
        [DDL_PICKLE_OTHER] = "bytes or a large integer",
    };
    return names[kind];
}

/* ---- the stack ---- */

/* Capacity for one more element of an array. */
static bool reserve(void **array, size_t n, size_t *capacity, size_t size)
{
    if (n < *capacity)
        return true;
    size_t wanted = *capacity ? 2 * *capacity : 64;
    void *grown = realloc(*array, wanted * size);
    if (!grown)
        return false;
    *array = grown;
    *capacity = wanted;
    return true;
}

static ddl_status push(struct machine *m, ddl_pickle_ref value)
{
    void *stack = m->stack;
    bool fits = reserve(&stack, m->n_stack, &m->stack_capacity, sizeof *m->stack);
    m->stack = stack;
    if (!fits)
        return no_memory(m);
    m->stack[m->n_stack++] = value;
    return DDL_OK;
}

static ddl_status pop(struct machine *m, ddl_pickle_ref *value)
{
    if (m->n_stack == 0 || m->stack[m->n_stack - 1] == no_value)
        return malformed(m, "a value is missing on the stack");
    *value = m->stack[--m->n_stack];
    return DDL_OK;
}

/* Pops the values above the last mark, and the mark. They stay in memory, from *first, until the next push.
 */
static ddl_status pop_to_mark(struct machine *m, size_t *first, size_t *n)
{
    size_t i = m->n_stack;
    while (i > 0 && m->stack[i - 1] != no_value)
        i--;
    if (i == 0)
        return malformed(m, "there is no mark on the stack");
    *first = i;
    *n = m->n_stack - i;
    m->n_stack = i - 1;
    return DDL_OK;
}

/* ---- values ---- */

static ddl_status make(struct machine *m, const struct ddl_pickle_value *value, ddl_pickle_ref *ref)
{
    void *values = m->out.values;
    bool fits = reserve(&values, m->n_values, &m->values_capacity, sizeof *m->out.values);
    m->out.values = values;
    if (!fits)
        return no_memory(m);
    m->out.values[m->n_values] = *value;
    *ref = (ddl_pickle_ref)m->n_values++;
    return DDL_OK;
}

static ddl_status push_new(struct machine *m, const struct ddl_pickle_value *value)
{
    ddl_pickle_ref ref = 0;
    ddl_status status = make(m, value, &ref);
    return status ? status : push(m, ref);
}

static ddl_status add_item(struct machine *m, ddl_pickle_ref container, ddl_pickle_ref key,
                           ddl_pickle_ref value)
{
    void *items = m->out.items;
    bool fits = reserve(&items, m->n_items, &m->items_capacity, sizeof *m->out.items);
    m->out.items = items;
    if (!fits)
        return no_memory(m);
    struct ddl_pickle_value *c = &m->out.values[container];
    uint32_t index = (uint32_t)m->n_items++;
    m->out.items[index] = (struct ddl_pickle_item){ key, value, 0 };
    if (c->n++ == 0)
        c->as.items.first = index;
    else
        m->out.items[c->as.items.last].next = index;
    c->as.items.last = index;
    return DDL_OK;
}

/* Pushes a container of n values that were on the stack from `first`. */
static ddl_status push_items(struct machine *m, enum ddl_pickle_kind kind, size_t first, size_t n)
{
    if (n == 0 && kind == DDL_PICKLE_TUPLE)
        return push(m, IS_EMPTY_TUPLE);
    const struct ddl_pickle_value empty = { .kind = kind };
    ddl_pickle_ref ref = 0;
    ddl_status status = make(m, &empty, &ref);
    for (size_t i = 0; i < n && !status; i++)
        status = add_item(m, ref, no_value, m->stack[first + i]);
    return status ? status : push(m, ref);
}

/* Pops n values to a new container. */
static ddl_status collect(struct machine *m, enum ddl_pickle_kind kind, size_t n)
{
    ddl_pickle_ref ignored = 0;
    for (size_t i = 0; i < n; i++) {
        ddl_status status = pop(m, &ignored);
        if (status)
            return status;
    }
    return push_items(m, kind, m->n_stack, n);
}

static ddl_status collect_to_mark(struct machine *m)
{
    size_t first = 0, n = 0;
    ddl_status status = pop_to_mark(m, &first, &n);
    return status ? status : push_items(m, DDL_PICKLE_TUPLE, first, n);
}

/* Adds n values, which were on the stack from `first`, to the list or dict that is on top of it. */
static ddl_status extend(struct machine *m, enum ddl_pickle_kind kind, size_t first, size_t n)
{
    if (m->n_stack == 0 || m->stack[m->n_stack - 1] == no_value ||
        m->out.values[m->stack[m->n_stack - 1]].kind != kind)
        return malformed(m, kind == DDL_PICKLE_DICT ? "items are added to a value that is not a dict"
                                                    : "items are added to a value that is not a list");
    ddl_pickle_ref container = m->stack[m->n_stack - 1];
    size_t step = kind == DDL_PICKLE_DICT ? 2 : 1;
    if (n % step)
        return malformed(m, "a key has no value");
    ddl_status status = DDL_OK;
    for (size_t i = 0; i < n && !status; i += step)
        status = add_item(m, container, step == 2 ? m->stack[first + i] : no_value,
                          m->stack[first + i + step - 1]);
    return status;
}

static ddl_status extend_by(struct machine *m, enum ddl_pickle_kind kind, size_t n)
{
    ddl_pickle_ref ignored = 0;
    for (size_t i = 0; i < n; i++) {
        ddl_status status = pop(m, &ignored);
        if (status)
            return status;
    }
    return extend(m, kind, m->n_stack, n);
}

static ddl_status extend_to_mark(struct machine *m, enum ddl_pickle_kind kind)
{
    size_t first = 0, n = 0;
    ddl_status status = pop_to_mark(m, &first, &n);
    return status ? status : extend(m, kind, first, n);
}

/* ---- arguments of opcodes ---- */

static ddl_status take(struct machine *m, uint64_t n, const unsigned char **out)
{
    if (n > m->size - m->at)
        return malformed(m, "it ends inside an opcode's argument");
    *out = m->data + m->at;
    m->at += (size_t)n;
    return DDL_OK;
}

/* A little-endian integer of that many bytes. */
static ddl_status take_number(struct machine *m, unsigned bytes, uint64_t *out)
{
    const unsigned char *from = NULL;
    ddl_status status = take(m, bytes, &from);
    *out = 0;
    for (unsigned i = bytes; !status && i-- > 0;)
        *out = *out << 8 | from[i];
    return status;
}

/* A length of that many bytes, then so many bytes. */
static ddl_status take_counted(struct machine *m, unsigned bytes, const unsigned char **out, uint64_t *n)
{
    ddl_status status = take_number(m, bytes, n);
    return status ? status : take(m, *n, out);
}

static ddl_status push_text(struct machine *m, unsigned bytes, enum ddl_pickle_kind kind)
{
    const unsigned char *text = NULL;
    uint64_t n;
    ddl_status status = take_counted(m, bytes, &text, &n);
    const struct ddl_pickle_value value = { .kind = kind, .n = (uint32_t)n, .as.text = text };
    return status ? status : push_new(m, &value);
}

static ddl_status push_int(struct machine *m, int64_t number)
{
    const struct ddl_pickle_value value = { .kind = DDL_PICKLE_INT, .as.number = number };
    return push_new(m, &value);
}

static ddl_status push_fixed(struct machine *m, unsigned bytes)
{
    uint64_t number;
    ddl_status status = take_number(m, bytes, &number);
    if (status)
        return status;
    return push_int(m,
                    bytes == 4 ? (int64_t)number - (number >> 31 ? (int64_t)1 << 32 : 0) : (int64_t)number);
}

/* An integer in two's complement with a length. */
static ddl_status push_long(struct machine *m, unsigned bytes)
{
    const unsigned char *from = NULL;
    uint64_t n, number = 0;
    ddl_status status = take_counted(m, bytes, &from, &n);
    if (status)
        return status;
    if (n > 8) {
        const struct ddl_pickle_value large = { .kind = DDL_PICKLE_OTHER };
        return push_new(m, &large);
    }
    for (uint64_t i = n; i-- > 0;)
        number = number << 8 | from[i];
    if (n && n < 8 && from[n - 1] >> 7)
        number |= UINT64_MAX << (8 * n);
    int64_t value;
    memcpy(&value, &number, sizeof value);
    return push_int(m, value);
}

static ddl_status push_float(struct machine *m)
{
    const unsigned char *from = NULL;
    ddl_status status = take(m, 8, &from);
    if (status)
        return status;
    uint64_t bits = 0;
    for (unsigned i = 0; i < 8; i++)
        bits = bits << 8 | from[i];
    struct ddl_pickle_value value = { .kind = DDL_PICKLE_FLOAT };
    memcpy(&value.as.real, &bits, sizeof bits);
    return push_new(m, &value);
}

/* ---- the memo ---- */

/* Python numbers the places of the memo from 0 on, so a place is never beyond the bytes of the pickle. */
static ddl_status put(struct machine *m, uint64_t place)
{
    if (m->n_stack == 0 || m->stack[m->n_stack - 1] == no_value)
        return malformed(m, "a value is missing on the stack");
    if (place >= m->size)
        return malformed(m, "an index of the memo is larger than the pickle");
    if (place >= m->memo_capacity) {
        size_t wanted = 2 * (size_t)place + 64;
        ddl_pickle_ref *memo = realloc(m->memo, wanted * sizeof *memo);
        if (!memo)
            return no_memory(m);
        for (size_t i = m->memo_capacity; i < wanted; i++)
            memo[i] = no_value;
        m->memo = memo;
        m->memo_capacity = wanted;
    }
    m->n_memoized += m->memo[place] == no_value;
    m->memo[place] = m->stack[m->n_stack - 1];
    return DDL_OK;
}

static ddl_status put_at(struct machine *m, unsigned bytes)
{
    uint64_t place;
    ddl_status status = take_number(m, bytes, &place);
    return status ? status : put(m, place);
}

static ddl_status get_at(struct machine *m, unsigned bytes)
{
    uint64_t place;
    ddl_status status = take_number(m, bytes, &place);
    if (status)
        return status;
    if (place >= m->memo_capacity || m->memo[place] == no_value)
        return malformed(m, "the memo has no value at this index");
    return push(m, m->memo[place]);
}

/* ---- globals and calls ---- */

static bool is_name(const char *name, const unsigned char *text, size_t n)
{
    return strlen(name) == n && memcmp(name, text, n) == 0;
}

static ddl_status push_global(struct machine *m, const unsigned char *module, size_t module_size,
                              const unsigned char *name, size_t name_size)
{
    for (size_t i = 0; i < m->n_globals; i++) {
        const struct ddl_pickle_value value = { .kind = DDL_PICKLE_GLOBAL, .as.number = (int64_t)i };
        if (is_name(m->globals[i].module, module, module_size) &&
            is_name(m->globals[i].name, name, name_size))
            return push_new(m, &value);
    }
    return ddl_error_set(m->err, DDL_E_UNSUPPORTED,
                         "%s: the pickle uses %.*s.%.*s: expected only what tensors need; nothing of it was "
                         "executed. Save a state dict: torch.save(model.state_dict(), FILE)",
                         m->path, (int)(module_size < 100 ? module_size : 100), (const char *)module,
                         (int)(name_size < 100 ? name_size : 100), (const char *)name);
}

/* A line, without its end. */
static ddl_status take_line(struct machine *m, const unsigned char **line, size_t *n)
{
    const unsigned char *from = m->data + m->at, *end = memchr(from, '\n', m->size - m->at);
    if (!end)
        return malformed(m, "it ends inside an opcode's argument");
    *line = from;
    *n = (size_t)(end - from);
    m->at += *n + 1;
    return DDL_OK;
}

static ddl_status global(struct machine *m)
{
    const unsigned char *module = NULL, *name = NULL;
    size_t module_size = 0, name_size = 0;
    ddl_status status = take_line(m, &module, &module_size);
    if (!status)
        status = take_line(m, &name, &name_size);
    return status ? status : push_global(m, module, module_size, name, name_size);
}

static ddl_status stack_global(struct machine *m)
{
    ddl_pickle_ref name = 0, module = 0;
    ddl_status status = pop(m, &name);
    if (!status)
        status = pop(m, &module);
    if (status)
        return status;
    const struct ddl_pickle_value *a = &m->out.values[module], *b = &m->out.values[name];
    if (a->kind != DDL_PICKLE_TEXT || b->kind != DDL_PICKLE_TEXT)
        return malformed(m, "the name of a global is not a string");
    return push_global(m, a->as.text, a->n, b->as.text, b->n);
}

static ddl_status reduce(struct machine *m)
{
    if (m->n_stack < 2)
        return malformed(m, "a value is missing on the stack");
    ddl_pickle_ref function = m->stack[m->n_stack - 2], arguments = m->stack[m->n_stack - 1];
    if (function == no_value || arguments == no_value)
        return malformed(m, "a value is missing on the stack");
    const struct ddl_pickle_value *f = &m->out.values[function], *a = &m->out.values[arguments];
    if (f->kind != DDL_PICKLE_GLOBAL || a->kind != DDL_PICKLE_TUPLE)
        return malformed(m, "a call of a value that is not a global, or without a tuple of arguments");
    const struct ddl_pickle_global *row = &m->globals[f->as.number];
    if (!row->makes_dict)
        return collect(m, DDL_PICKLE_CALL, 2);
    if (a->n)
        return malformed(m, "OrderedDict is called with arguments");
    m->n_stack -= 2;
    const struct ddl_pickle_value dict = { .kind = DDL_PICKLE_DICT };
    return push_new(m, &dict);
}

/* Sets attributes of an object, which no tensor needs. */
static ddl_status build(struct machine *m)
{
    ddl_pickle_ref state = 0, object = 0;
    ddl_status status = pop(m, &state);
    if (!status)
        status = pop(m, &object);
    return status ? status : push(m, object);
}

/* ---- opcodes ---- */

static ddl_status step(struct machine *m, unsigned char opcode)
{
    const unsigned char *skipped;
    size_t first = 0, n = 0;
    switch (opcode) {
    case PROTO:
        return take(m, 1, &skipped);
    case FRAME:
        return take(m, 8, &skipped);
    case MARK:
        return push(m, no_value);
    case POP:
        if (m->n_stack == 0)
            return malformed(m, "a value is missing on the stack");
        m->n_stack--;
        return DDL_OK;
    case POP_MARK:
        return pop_to_mark(m, &first, &n);
    case NONE:
        return push(m, IS_NONE);
    case NEWTRUE:
        return push(m, IS_TRUE);
    case NEWFALSE:
        return push(m, IS_FALSE);
    case BININT:
        return push_fixed(m, 4);
    case BININT1:
        return push_fixed(m, 1);
    case BININT2:
        return push_fixed(m, 2);
    case LONG1:
        return push_long(m, 1);
    case LONG4:
        return push_long(m, 4);
    case BINFLOAT:
        return push_float(m);
    case SHORT_BINSTRING:
    case SHORT_BINUNICODE:
        return push_text(m, 1, DDL_PICKLE_TEXT);
    case BINSTRING:
    case BINUNICODE:
        return push_text(m, 4, DDL_PICKLE_TEXT);
    case BINUNICODE8:
        return push_text(m, 8, DDL_PICKLE_TEXT);
    case SHORT_BINBYTES:
        return push_text(m, 1, DDL_PICKLE_OTHER);
    case BINBYTES:
        return push_text(m, 4, DDL_PICKLE_OTHER);
    case BINBYTES8:
        return push_text(m, 8, DDL_PICKLE_OTHER);
    case EMPTY_TUPLE:
        return push(m, IS_EMPTY_TUPLE);
    case EMPTY_LIST:
        return push_items(m, DDL_PICKLE_LIST, 0, 0);
    case EMPTY_DICT:
        return push_items(m, DDL_PICKLE_DICT, 0, 0);
    case TUPLE:
        return collect_to_mark(m);
    case TUPLE1:
        return collect(m, DDL_PICKLE_TUPLE, 1);
    case TUPLE2:
        return collect(m, DDL_PICKLE_TUPLE, 2);
    case TUPLE3:
        return collect(m, DDL_PICKLE_TUPLE, 3);
    case APPEND:
        return extend_by(m, DDL_PICKLE_LIST, 1);
    case APPENDS:
        return extend_to_mark(m, DDL_PICKLE_LIST);
    case SETITEM:
        return extend_by(m, DDL_PICKLE_DICT, 2);
    case SETITEMS:
        return extend_to_mark(m, DDL_PICKLE_DICT);
    case BINPUT:
        return put_at(m, 1);
    case LONG_BINPUT:
        return put_at(m, 4);
    case MEMOIZE:
        return put(m, m->n_memoized);
    case BINGET:
        return get_at(m, 1);
    case LONG_BINGET:
        return get_at(m, 4);
    case GLOBAL:
        return global(m);
    case STACK_GLOBAL:
        return stack_global(m);
    case BINPERSID:
        return collect(m, DDL_PICKLE_PERSISTENT, 1);
    case REDUCE:
        return reduce(m);
    case BUILD:
        return build(m);
    default:
        return ddl_error_set(
            m->err, DDL_E_UNSUPPORTED,
            "%s: the pickle has opcode 0x%02x at byte %zu: expected only those that tensors, "
            "containers, numbers and strings need; nothing of it was executed",
            m->path, opcode, m->opcode_at);
    }
}

static ddl_status run(struct machine *m)
{
    static const struct ddl_pickle_value constants[CONSTANTS] = {
        [IS_NONE] = { .kind = DDL_PICKLE_NONE },
        [IS_FALSE] = { .kind = DDL_PICKLE_BOOL },
        [IS_TRUE] = { .kind = DDL_PICKLE_BOOL, .as.number = 1 },
        [IS_EMPTY_TUPLE] = { .kind = DDL_PICKLE_TUPLE },
    };
    ddl_pickle_ref ref = 0;
    ddl_status status = DDL_OK;
    for (size_t i = 0; i < CONSTANTS && !status; i++)
        status = make(m, &constants[i], &ref);
    while (!status) {
        m->opcode_at = m->at;
        if (m->at == m->size)
            return malformed(m, "it ends without a STOP");
        unsigned char opcode = m->data[m->at++];
        if (opcode == STOP)
            return pop(m, &m->out.root);
        status = step(m, opcode);
    }
    return status;
}

ddl_status ddl_pickle_read(struct ddl_pickle *out, const unsigned char *data, size_t size,
                           const struct ddl_pickle_global *globals, size_t n, const char *path,
                           struct ddl_error *err)
{
    *out = (struct ddl_pickle){ 0 };
    if (size > DDL_PICKLE_MAX)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: a pickle of %zu bytes exceeds the limit of %d", path,
                             size, DDL_PICKLE_MAX);
    struct machine m = {
        .data = data, .size = size, .globals = globals, .n_globals = n, .path = path, .err = err
    };
    ddl_status status = run(&m);
    free(m.stack);
    free(m.memo);
    if (status)
        ddl_pickle_close(&m.out);
    else
        *out = m.out;
    return status;
}

void ddl_pickle_close(struct ddl_pickle *pickle)
{
    free(pickle->values);
    free(pickle->items);
    *pickle = (struct ddl_pickle){ 0 };
}

/* ---- reading values ---- */

bool ddl_pickle_tuple(const struct ddl_pickle *pickle, ddl_pickle_ref tuple, size_t n,
                      const struct ddl_pickle_value **out)
{
    const struct ddl_pickle_value *t = &pickle->values[tuple];
    if (t->kind != DDL_PICKLE_TUPLE || t->n < n)
        return false;
    uint32_t item = t->as.items.first;
    for (size_t i = 0; i < n; i++) {
        out[i] = &pickle->values[pickle->items[item].value];
        item = pickle->items[item].next;
    }
    return true;
}

bool ddl_pickle_is_text(const struct ddl_pickle_value *value, const char *text)
{
    return value->kind == DDL_PICKLE_TEXT && is_name(text, value->as.text, value->n);
}
