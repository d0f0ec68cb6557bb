/* How alike two texts are: the cosine of their vectors.
 *
 *   cc embed.c -o embed $(pkg-config --cflags --libs pelton)
 *   ./embed MODEL "a water wheel" "a turbine"
 */
#include <pelton.h>
#include <stdio.h>
#include <stdlib.h>

static float* vector_of(pelton_model* model, const char* text, size_t count) {
  float* vector = malloc(count * sizeof *vector);
  if (vector != NULL && pelton_embed(model, text, NULL, vector, &count) != PELTON_OK) {
    fprintf(stderr, "%s\n", pelton_error_message());
    free(vector);
    return NULL;
  }
  return vector;
}

int main(int argc, char** argv) {
  pelton_model* model = NULL;
  float* first;
  float* second;
  double cosine = 0;
  size_t count;
  size_t i;

  if (argc != 4) {
    fprintf(stderr, "usage: embed MODEL TEXT TEXT\n");
    return 2;
  }
  if (pelton_load(argv[1], NULL, &model) != PELTON_OK) {
    fprintf(stderr, "%s\n", pelton_error_message());
    return 1;
  }
  count = (size_t)pelton_embedding_size(model);
  first = vector_of(model, argv[2], count);
  second = vector_of(model, argv[3], count);
  if (first != NULL && second != NULL) {
    for (i = 0; i < count; ++i) cosine += (double)first[i] * (double)second[i];
    printf("%.6f\n", cosine);
  }
  pelton_free(model);
  free(first);
  free(second);
  return first != NULL && second != NULL ? 0 : 1;
}
