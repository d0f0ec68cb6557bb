/* libpelton: a model in a program of your own, without a server.
 *
 * A model is loaded once and answers any number of requests at a time, from any thread: what is
 * asked together is computed together. Everything that is made by one function here is given back
 * by another, named in its comment; nothing else is owned by the caller.
 *
 * Functions that can fail return a pelton_status; what went wrong is then a sentence in
 * pelton_error_message(), of the calling thread, until its next call that fails.
 *
 * Structures begin with `size` and may get more fields at their end. Fill them with their _init
 * function, then change what should be other than the default; they are whole words long, so that a
 * new field always makes one longer. A structure of a newer header is
 * refused by an older library only where a field that it does not know has been set.
 *
 * Texts are UTF-8 and end in a zero byte. Where a function fills a buffer, `*count` is its room on
 * entry and what there is on return; PELTON_BUFFER_TOO_SMALL where that is more than the room, with
 * nothing written. A null buffer with a room of 0 asks how much there is.
 */
#ifndef PELTON_H
#define PELTON_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(PELTON_BUILDING_LIBRARY)
#define PELTON_API __attribute__((visibility("default")))
#else
#define PELTON_API
#endif

/* Grows with what a program compiled against the header before could not go on with. */
#define PELTON_ABI_VERSION 1

typedef enum pelton_status {
  PELTON_OK = 0,
  PELTON_INVALID_ARGUMENT = 1, /* what was asked is wrong */
  PELTON_NOT_FOUND = 2,        /* no such model or file */
  PELTON_BAD_CHECKPOINT = 3,   /* a model's files are damaged or not what they claim to be */
  PELTON_UNSUPPORTED = 4,      /* well formed, but not something this model or library does */
  PELTON_DOES_NOT_FIT = 5,     /* more memory or context than there is */
  PELTON_OVERLOADED = 6,       /* too many requests wait; try again later */
  PELTON_UNAVAILABLE = 7,      /* the model is being freed */
  PELTON_CANCELLED = 8,        /* the progress function stopped the load */
  PELTON_DEADLINE = 9,         /* out of time */
  PELTON_IO = 10,              /* the operating system said no */
  PELTON_INTERNAL = 11,        /* a fault of the library's */
  PELTON_BUFFER_TOO_SMALL = 12
} pelton_status;

/* "0.1.0". */
PELTON_API const char* pelton_version(void);
/* PELTON_ABI_VERSION of the library that is there at run time. */
PELTON_API int pelton_abi_version(void);
/* What the calling thread's last call that failed has to say; never null. */
PELTON_API const char* pelton_error_message(void);

/* ---- models ---- */

typedef struct pelton_model pelton_model;

typedef enum pelton_log_level {
  PELTON_LOG_DEBUG = 0,
  PELTON_LOG_INFO = 1,
  PELTON_LOG_WARNING = 2,
  PELTON_LOG_ERROR = 3,
  PELTON_LOG_NONE = 4
} pelton_log_level;

typedef struct pelton_load_options {
  size_t size;
  /* As the flags of `pelton serve` of these names; null: the flag's default. */
  const char* weights;        /* "shipped", "mapped", "auto" or "int8" */
  const char* weights_cache;  /* a folder for packed weights; null: they stay in memory */
  const char* load_mode;      /* "auto", "mmap", "lock" or "read" */
  const char* kv_cache_dtype; /* "auto", "f16", "bf16", "fp8" or "int8" */
  const char* device;         /* "cpu", "cuda" or "auto" */
  const char* chat_template;  /* a file instead of the model's own template */
  int32_t threads;            /* that compute; 0: one for each usable processor */
  int32_t context_tokens;     /* of a prompt with its answer; 0: what the model can read */
  int32_t sequences;          /* computed at a time */
  int32_t batch_tokens;       /* of a step, over all sequences */
  int64_t kv_cache_bytes;     /* 0: half of the memory that is left */
  int32_t log_level;          /* a pelton_log_level: lines on stderr */
  /* Called on the loading thread while it takes long; `total` 0: not known. Other than 0 stops. */
  int (*progress)(void* data, const char* what, int64_t done, int64_t total);
  void* progress_data;
} pelton_load_options;

PELTON_API void pelton_load_options_init(pelton_load_options* options, size_t size);

/* `model`: a folder, a .gguf file, or the hub id of a model that `pelton pull` has fetched; nothing
 * is downloaded. `options` may be null. Freed by pelton_free. */
PELTON_API pelton_status pelton_load(const char* model, const pelton_load_options* options,
                                     pelton_model** loaded);
/* Null is nothing. Generations and grammars that are left keep what they need of it; requests that
 * run go on. */
PELTON_API void pelton_free(pelton_model* model);

/* Of null: 0. */
PELTON_API int32_t pelton_context_tokens(const pelton_model* model);
PELTON_API int32_t pelton_vocabulary_size(const pelton_model* model);
/* Floats of a vector of pelton_embed; 0: the model makes none. */
PELTON_API int32_t pelton_embedding_size(const pelton_model* model);
/* Other than 0: requests may have messages. */
PELTON_API int pelton_has_chat_format(const pelton_model* model);

/* ---- text and tokens ---- */

enum {
  PELTON_TOKENIZE_PLAIN = 0,  /* the text's tokens and no others */
  PELTON_TOKENIZE_PROMPT = 1, /* with what the model's files put before and behind a prompt */
  PELTON_TOKENIZE_SPECIAL = 2 /* texts of control tokens become these; never for a user's text */
};
/* `bytes` of `text`, which may hold zero bytes. */
PELTON_API pelton_status pelton_tokenize(const pelton_model* model, const char* text, size_t bytes,
                                         int how, int32_t* tokens, size_t* count);
/* `*bytes` as other counts; no zero byte is written behind the text. Broken UTF-8 is replaced. */
PELTON_API pelton_status pelton_detokenize(const pelton_model* model, const int32_t* tokens,
                                           size_t count, char* text, size_t* bytes);

/* ---- grammars ---- */

typedef struct pelton_grammar pelton_grammar;

typedef enum pelton_grammar_kind {
  PELTON_JSON_SCHEMA = 0, /* a JSON Schema */
  PELTON_JSON_OBJECT = 1, /* any object; the text is not read and may be null */
  PELTON_REGEX = 2,       /* as ECMA-262 has them; the whole answer matches */
  PELTON_EBNF = 3         /* GBNF or Lark */
} pelton_grammar_kind;

/* For requests to this model. Bounded in time and memory; may take up to a second or so. Freed by
 * pelton_grammar_free, at any time: requests that run keep what they need. */
PELTON_API pelton_status pelton_grammar_compile(pelton_model* model, pelton_grammar_kind kind,
                                                const char* text, pelton_grammar** grammar);
PELTON_API void pelton_grammar_free(pelton_grammar* grammar);

/* ---- answers ---- */

typedef struct pelton_request {
  size_t size;
  /* What is to be gone on with: one of these three. */
  const int32_t* tokens; /* `token_count` of them */
  size_t token_count;
  const char* prompt;   /* a text, without a chat format */
  const char* messages; /* a JSON array, as "messages" of OpenAI's chat completions */
  /* With messages: a JSON array, as "tools" there, and "low", "medium" or "high"; may be null. */
  const char* tools;
  const char* reasoning_effort;
  const pelton_grammar* grammar; /* of the answer; null: free */
  int32_t max_tokens;            /* 0: as many as the context has room for */
  int32_t ignore_stop_tokens;    /* other than 0: only max_tokens ends it */
  float temperature;             /* 0: the likeliest token each time */
  float top_p;
  float min_p;
  int32_t top_k; /* 0: all */
  float repetition_penalty;
  float frequency_penalty;
  float presence_penalty;
  int32_t has_seed; /* other than 0: `seed` says how it is sampled; otherwise by chance */
  uint64_t seed;
  int32_t logprobs; /* other than 0: events have the logarithm of their token's probability */
  int32_t reserved; /* 0 */
} pelton_request;

/* The model's own sampling (its generation_config.json when it was loaded), and nothing to go on
 * with. Of a null model: all zeros but for the size. */
PELTON_API void pelton_request_init(const pelton_model* model, pelton_request* request,
                                    size_t size);

/* The tokens that the request's prompt comes to. */
PELTON_API pelton_status pelton_prompt_tokens(const pelton_model* model,
                                              const pelton_request* request, int32_t* tokens,
                                              size_t* count);

typedef enum pelton_event_kind {
  PELTON_TEXT = 0,           /* of the answer */
  PELTON_REASONING = 1,      /* with messages: what the model thinks first */
  PELTON_TOOL_CALL = 2,      /* with tools: a call begins; `text` is the function's name */
  PELTON_TOOL_ARGUMENTS = 3, /* of that call: JSON, if the model made it so */
  PELTON_TOKEN = 4           /* a token that brought no text yet: `text` is empty */
} pelton_event_kind;

/* Valid until the function it was given to returns. */
typedef struct pelton_event {
  size_t size;
  pelton_event_kind kind;
  const char* text; /* whole characters, and a zero byte behind them */
  size_t bytes;
  int32_t call;  /* of calls: which one, from 0 */
  int32_t token; /* in the first event that it brought; -1 in further ones */
  float logprob; /* of `token`, if asked for */
  int32_t reserved;
} pelton_event;

/* Returns 0 to go on; otherwise the generation ends as if cancelled. */
typedef int (*pelton_callback)(void* data, const pelton_event* event);

typedef enum pelton_finish {
  PELTON_FINISH_STOP = 0, /* the model ended it, or the grammar was complete */
  PELTON_FINISH_LENGTH = 1,
  PELTON_FINISH_TOOL_CALLS = 2,
  PELTON_FINISH_CANCELLED = 3
} pelton_finish;

typedef struct pelton_result {
  size_t size;
  pelton_finish finish;
  int32_t prompt_tokens;
  int32_t cached_tokens; /* of the prompt: not computed again */
  int32_t output_tokens;
  int64_t first_token_ns; /* from the submission to the first token; 0: there was none */
  int64_t total_ns;       /* to the last one */
} pelton_result;

PELTON_API void pelton_result_init(pelton_result* result, size_t size);

/* Answers, and returns when the answer has ended; `callback` (may be null) is called on this
 * thread; an exception that it throws ends the answer with PELTON_INTERNAL and goes no further.
 * `result`, which pelton_result_init has sized, may be null. What a callback may call: everything
 * but what waits for this very generation. */
PELTON_API pelton_status pelton_generate(pelton_model* model, const pelton_request* request,
                                         pelton_callback callback, void* data,
                                         pelton_result* result);

/* The same in three steps, for one thread that reads and another that may cancel. */
typedef struct pelton_generation pelton_generation;
/* Begins; the request need not stay. Ended by pelton_generation_free. */
PELTON_API pelton_status pelton_start(pelton_model* model, const pelton_request* request,
                                      pelton_generation** generation);
/* Once, from any one thread: as pelton_generate from there on. */
PELTON_API pelton_status pelton_read(pelton_generation* generation, pelton_callback callback,
                                     void* data, pelton_result* result);
/* Any thread, any time: pelton_read returns within a step, with PELTON_FINISH_CANCELLED. */
PELTON_API void pelton_cancel(pelton_generation* generation);
/* Not while pelton_read is running. Null is nothing. One that has not been read is cancelled. */
PELTON_API void pelton_generation_free(pelton_generation* generation);

/* ---- vectors ---- */

/* The text's vector, of length one. `pooling`: "cls", "mean" or "last"; null: as the model's files
 * say. `*count` floats, which are pelton_embedding_size(). */
PELTON_API pelton_status pelton_embed(pelton_model* model, const char* text, const char* pooling,
                                      float* vector, size_t* count);

#ifdef __cplusplus
}
#endif

#endif /* PELTON_H */
