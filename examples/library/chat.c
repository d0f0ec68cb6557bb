/* Asks a model one question and prints the answer as it comes.
 *
 *   cc chat.c -o chat $(pkg-config --cflags --libs pelton)
 *   ./chat MODEL "What is a Pelton wheel?"
 */
#include <pelton.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int print(void* data, const pelton_event* event) {
  (void)data;
  if (event->kind == PELTON_TEXT) {
    fwrite(event->text, 1, event->bytes, stdout);
    fflush(stdout);
  }
  return 0; /* go on */
}

/* The text as a JSON string, quotation marks included. Freed by the caller. */
static char* json_string(const char* text) {
  char* out = malloc(6 * strlen(text) + 3);
  char* at = out;
  if (out == NULL) return NULL;
  *at++ = '"';
  for (; *text != '\0'; ++text) {
    if (*text == '"' || *text == '\\') *at++ = '\\';
    if ((unsigned char)*text < 0x20) {
      at += sprintf(at, "\\u%04x", (unsigned)(unsigned char)*text);
    } else {
      *at++ = *text;
    }
  }
  *at++ = '"';
  *at = '\0';
  return out;
}

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, pelton_error_message());
  return 1;
}

int main(int argc, char** argv) {
  pelton_model* model = NULL;
  pelton_request request;
  pelton_result result;
  pelton_status status;
  char* question;
  char* messages;

  if (argc != 3) {
    fprintf(stderr, "usage: chat MODEL QUESTION\n");
    return 2;
  }
  if (pelton_load(argv[1], NULL, &model) != PELTON_OK) return fail(argv[1]);

  question = json_string(argv[2]);
  messages = malloc(strlen(question) + 64);
  sprintf(messages, "[{\"role\": \"user\", \"content\": %s}]", question);

  pelton_request_init(model, &request, sizeof request);
  request.messages = messages;
  request.temperature = 0;
  pelton_result_init(&result, sizeof result);
  status = pelton_generate(model, &request, print, NULL, &result);
  printf("\n");
  if (status == PELTON_OK) {
    fprintf(stderr, "%d tokens, the first after %.0f ms\n", (int)result.output_tokens,
            (double)result.first_token_ns * 1e-6);
  }
  free(messages);
  free(question);
  pelton_free(model);
  return status == PELTON_OK ? 0 : fail("chat");
}
