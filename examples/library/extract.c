/* Three answers at a time, each a JSON object that a schema describes, on threads of their own; and
 * one that is cancelled from another thread.
 *
 *   cc extract.c -o extract -pthread $(pkg-config --cflags --libs pelton)
 *   ./extract MODEL
 */
#include <pelton.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWERS 3
#define ANSWER_BYTES 4096

static const char* const schema =
    "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\", \"maxLength\": 20},"
    " \"inhabitants\": {\"type\": \"integer\"}}, \"required\": [\"city\", \"inhabitants\"],"
    " \"additionalProperties\": false}";

struct job {
  pelton_model* model;
  const pelton_grammar* grammar;
  const char* prompt;
  char answer[ANSWER_BYTES];
  size_t bytes;
  pelton_status status;
};

/* Keeps what comes; ends the answer when the room is full. */
static int keep(void* data, const pelton_event* event) {
  struct job* job = data;
  if (event->kind != PELTON_TEXT) return 0;
  if (job->bytes + event->bytes >= ANSWER_BYTES) return 1;
  memcpy(job->answer + job->bytes, event->text, event->bytes + 1);
  job->bytes += event->bytes;
  return 0;
}

static void* answer(void* data) {
  struct job* job = data;
  pelton_request request;
  pelton_request_init(job->model, &request, sizeof request);
  request.prompt = job->prompt;
  request.grammar = job->grammar;
  request.temperature = 0;
  request.max_tokens = 200;
  job->status = pelton_generate(job->model, &request, keep, job, NULL);
  if (job->status != PELTON_OK) fprintf(stderr, "%s\n", pelton_error_message());
  return NULL;
}

static void* cancel(void* data) {
  pelton_cancel(data);
  return NULL;
}

/* Until it is cancelled this would go on for as long as the context has room. */
static int cancel_one(pelton_model* model) {
  pelton_generation* generation = NULL;
  pelton_request request;
  pelton_result result;
  pthread_t thread;
  pelton_status status;
  pelton_request_init(model, &request, sizeof request);
  request.prompt = "Once upon a time";
  request.ignore_stop_tokens = 1;
  if (pelton_start(model, &request, &generation) != PELTON_OK) return 1;
  pthread_create(&thread, NULL, cancel, generation);
  pelton_result_init(&result, sizeof result);
  status = pelton_read(generation, NULL, NULL, &result);
  pthread_join(thread, NULL);
  pelton_generation_free(generation);
  return status == PELTON_OK && result.finish == PELTON_FINISH_CANCELLED ? 0 : 1;
}

int main(int argc, char** argv) {
  static const char* const prompts[ANSWERS] = {"A city in France: ", "A city in Italy: ",
                                               "A city in Korea: "};
  pelton_model* model = NULL;
  pelton_grammar* grammar = NULL;
  pelton_load_options options;
  struct job* jobs;
  pthread_t threads[ANSWERS];
  int failed = 0;
  int i;

  if (argc != 2) {
    fprintf(stderr, "usage: extract MODEL\n");
    return 2;
  }
  pelton_load_options_init(&options, sizeof options);
  options.sequences = ANSWERS + 1;
  options.context_tokens = 2048;
  if (pelton_load(argv[1], &options, &model) != PELTON_OK ||
      pelton_grammar_compile(model, PELTON_JSON_SCHEMA, schema, &grammar) != PELTON_OK) {
    fprintf(stderr, "%s\n", pelton_error_message());
    pelton_free(model);
    return 1;
  }
  jobs = calloc(ANSWERS, sizeof *jobs);
  for (i = 0; i < ANSWERS; ++i) {
    jobs[i].model = model;
    jobs[i].grammar = grammar;
    jobs[i].prompt = prompts[i];
    pthread_create(&threads[i], NULL, answer, &jobs[i]);
  }
  for (i = 0; i < ANSWERS; ++i) {
    pthread_join(threads[i], NULL);
    if (jobs[i].status != PELTON_OK) failed = 1;
    printf("%s\n", jobs[i].answer);
  }
  if (cancel_one(model) != 0) {
    fprintf(stderr, "it was not cancelled\n");
    failed = 1;
  }
  free(jobs);
  pelton_grammar_free(grammar);
  pelton_free(model);
  return failed;
}
