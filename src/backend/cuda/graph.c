/* CUDA graphs. Between begin_graph and end_graph the commands of ops are recorded in a list, which is
 * submitted as a whole: a list that equals an earlier one, byte by byte, by launching the graph of that one,
 * without another call of the driver. A list is captured into a graph when it comes for the second time; the
 * first time, and where graphs fail, its commands are executed one by one. Before that, fuse.c replaces some
 * by kernels that do the work of several. The bits of the results are the same.
 *
 * A call whose order with the commands matters, such as a transfer, submits those recorded before it. */
#include "backend/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRAPHS = 64 };    /* graphs at a time; the one that was not used for longest is replaced */
enum { SEEN = 64 };      /* lists that came once and are remembered */
enum { FEWEST = 8 };     /* commands of a list for which a graph pays */
enum { ALIGNMENT = 16 }; /* of a command */

struct list {
    unsigned char *commands;
    size_t bytes, capacity, n;
};

struct graph {
    unsigned char *commands; /* NULL: no graph */
    size_t bytes;
    CUgraphExec executable;
    uint64_t used; /* when it was launched last */
};

struct cuda_graphs {
    bool is_off; /* a graph could not be made, for the reason in failure */
    char failure[192];
    struct list list, recorded;       /* recorded: as it was before commands were fused */
    const struct cuda_command **each; /* of the recorded list */
    size_t most;                      /* commands for which `each` has place */
    struct graph graph[GRAPHS];
    uint64_t launches;
    uint64_t seen[SEEN]; /* hashes, in a ring */
    size_t next_seen;
};

/* ---- lists ---- */

static bool enlarge(struct list *list, size_t bytes)
{
    size_t capacity = list->capacity ? list->capacity : 1 << 16;
    while (capacity - list->bytes < bytes)
        capacity *= 2;
    if (capacity == list->capacity)
        return true;
    unsigned char *commands = realloc(list->commands, capacity);
    if (!commands)
        return false;
    list->commands = commands;
    list->capacity = capacity;
    return true;
}

void *cuda_record_command(struct cuda_device *d, cuda_execute *execute, size_t bytes)
{
    if (!d->is_recording)
        return NULL;
    struct list *list = &d->graphs->list;
    bytes = (sizeof(struct cuda_command) + bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (!enlarge(list, bytes)) {
        cuda_submit(d); /* in order */
        return NULL;
    }
    struct cuda_command *command = (struct cuda_command *)(void *)(list->commands + list->bytes);
    memset(command, 0, bytes); /* lists are compared as bytes */
    *command = (struct cuda_command){ execute, bytes };
    list->bytes += bytes;
    list->n++;
    return command + 1;
}

void cuda_repeat_command(struct cuda_device *d, const struct cuda_command *command)
{
    const size_t bytes = command->bytes - sizeof *command;
    void *again = cuda_record_command(d, command->execute, bytes);
    memcpy(again, command + 1, bytes);
}

/* Lists the commands of g->recorded in g->each, and makes place in g->list for as many and those of fused
 * kernels. False: no memory. */
static bool prepare_to_fuse(struct cuda_graphs *g)
{
    const struct list *recorded = &g->recorded;
    if (g->most < recorded->n) {
        const struct cuda_command **each = realloc(g->each, recorded->n * sizeof *each);
        if (!each)
            return false;
        g->each = each;
        g->most = recorded->n;
    }
    for (size_t at = 0, i = 0; at < recorded->bytes; at += g->each[i++]->bytes)
        g->each[i] = (const void *)(recorded->commands + at);
    return enlarge(&g->list, 2 * recorded->bytes);
}

/* Replaces commands of the list by kernels that do the work of several. */
static void fuse(struct cuda_device *d)
{
    struct cuda_graphs *g = d->graphs;
    struct list recorded = g->list;
    g->list = g->recorded;
    g->recorded = recorded;
    g->list.bytes = g->list.n = 0;
    if (!prepare_to_fuse(g)) {
        g->recorded = g->list;
        g->list = recorded;
        return;
    }
    for (size_t i = 0, n = 1; i < recorded.n; i += n ? n : 1) {
        n = cuda_fuse(d, g->each + i, recorded.n - i);
        if (n == 0)
            cuda_repeat_command(d, g->each[i]);
    }
}

static void execute(struct cuda_device *d)
{
    const struct list *list = &d->graphs->list;
    for (size_t at = 0; at < list->bytes;) {
        const struct cuda_command *command = (const void *)(list->commands + at);
        command->execute(d, command + 1);
        at += command->bytes;
    }
}

/* Whether a list with these bytes came before. It is remembered until it comes again. */
static bool was_seen(struct cuda_graphs *g)
{
    uint64_t hash = 14695981039346656037u, word;
    for (size_t at = 0; at < g->list.bytes; at += sizeof word) {
        memcpy(&word, g->list.commands + at, sizeof word);
        hash = (hash ^ word) * 1099511628211u;
        hash ^= hash >> 32;
    }
    for (size_t i = 0; i < SEEN; i++) {
        if (g->seen[i] == hash) {
            g->seen[i] = 0;
            return true;
        }
    }
    g->seen[g->next_seen] = hash;
    g->next_seen = (g->next_seen + 1) % SEEN;
    return false;
}

/* ---- graphs ---- */

static void drop(struct cuda_device *d, struct graph *graph)
{
    if (graph->commands)
        cuda_note(d, d->driver->graph_exec_destroy(graph->executable), "cuGraphExecDestroy");
    free(graph->commands);
    *graph = (struct graph){ 0 };
}

static void drop_all(struct cuda_device *d)
{
    for (size_t i = 0; i < GRAPHS; i++)
        drop(d, &d->graphs->graph[i]);
}

static struct graph *find(struct cuda_graphs *g)
{
    for (size_t i = 0; i < GRAPHS; i++) {
        struct graph *graph = &g->graph[i];
        if (graph->bytes == g->list.bytes && memcmp(graph->commands, g->list.commands, g->list.bytes) == 0)
            return graph;
    }
    return NULL;
}

/* "no graphs: cuStreamEndCapture: CUDA_ERROR_UNKNOWN" */
static void note_failure(struct cuda_device *d, CUresult result, const char *call)
{
    char reason[128];
    cuda_driver_error(d->driver, result, reason, sizeof reason);
    snprintf(d->graphs->failure, sizeof d->graphs->failure, "no graphs: %s: %.*s", call,
             (int)strcspn(reason, " "), reason);
}

/* The list's commands as a graph; NULL, and the device has no error, if they cannot be captured. */
static CUgraph capture(struct cuda_device *d)
{
    const struct cuda_driver *driver = cuda_enter(d);
    CUgraph captured = NULL;
    if (d->error)
        return NULL;
    CUresult result = driver->capture_begin(d->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (result) {
        note_failure(d, result, "cuStreamBeginCapture");
        return NULL;
    }
    execute(d);
    result = driver->capture_end(d->stream, &captured);
    if (d->error)
        note_failure(d, d->error, "a command");
    else if (result)
        note_failure(d, result, "cuStreamEndCapture");
    if (captured && (result || d->error)) {
        driver->graph_destroy(captured);
        captured = NULL;
    }
    d->error = CUDA_SUCCESS; /* of a call that was not executed; an error of the device comes again */
    d->error_text = NULL;
    return captured;
}

/* Makes the list a graph; NULL if that fails. */
static struct graph *make(struct cuda_device *d)
{
    struct cuda_graphs *g = d->graphs;
    struct graph *oldest = &g->graph[0], made = { .bytes = g->list.bytes };
    for (size_t i = 1; i < GRAPHS; i++) {
        if (g->graph[i].used < oldest->used)
            oldest = &g->graph[i];
    }
    made.commands = malloc(made.bytes);
    CUgraph captured = made.commands ? capture(d) : NULL;
    CUresult result =
        captured ? d->driver->graph_instantiate(&made.executable, captured, 0) : CUDA_ERROR_UNKNOWN;
    if (captured && result)
        note_failure(d, result, "cuGraphInstantiate");
    if (captured)
        d->driver->graph_destroy(captured);
    if (result) {
        free(made.commands);
        return NULL;
    }
    memcpy(made.commands, g->list.commands, made.bytes);
    drop(d, oldest);
    *oldest = made;
    return oldest;
}

/* The graph of the list; NULL if it has none. */
static struct graph *graph_of(struct cuda_device *d)
{
    struct cuda_graphs *g = d->graphs;
    struct graph *graph = g->is_off || g->list.n < FEWEST ? NULL : find(g);
    if (graph || g->is_off || g->list.n < FEWEST || !was_seen(g))
        return graph;
    graph = make(d);
    if (!graph) {
        drop_all(d);
        g->is_off = true;
    }
    return graph;
}

void cuda_submit(struct cuda_device *d)
{
    struct cuda_graphs *g = d->graphs;
    if (!g || g->list.bytes == 0)
        return;
    fuse(d);
    struct graph *graph = graph_of(d);
    if (graph) {
        graph->used = ++g->launches;
        cuda_note(d, cuda_enter(d)->graph_launch(graph->executable, d->stream), "cuGraphLaunch");
    } else {
        execute(d);
    }
    g->list.bytes = g->list.n = 0;
}

/* ---- the table's members, opening and closing ---- */

void cuda_begin_graph(void *ctx)
{
    struct cuda_device *d = ctx;
    d->is_recording = CUDA_HAS_GRAPHS && !d->graphs->is_off;
}

void cuda_end_graph(void *ctx)
{
    struct cuda_device *d = ctx;
    cuda_submit(d);
    d->is_recording = false;
}

const char *cuda_warning(void *ctx)
{
    const struct cuda_device *d = ctx;
    return *d->graphs->failure ? d->graphs->failure : NULL;
}

ddl_status cuda_graphs_open(struct cuda_device *d, struct ddl_error *err)
{
    d->graphs = calloc(1, sizeof *d->graphs);
    return d->graphs ? DDL_OK : ddl_error_set(err, DDL_E_MEMORY, "backend cuda: out of memory");
}

void cuda_graphs_close(struct cuda_device *d)
{
    if (!d->graphs)
        return;
    drop_all(d);
    free(d->graphs->list.commands);
    free(d->graphs->recorded.commands);
    free(d->graphs->each);
    free(d->graphs);
}
