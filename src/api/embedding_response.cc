#include "api/embedding_response.h"

#include <algorithm>
#include <bit>
#include <charconv>

#include "base/base64.h"
#include "base/json_writer.h"

namespace pelton::api {
namespace {

using base::JsonWriter;

// The format is little endian, as all machines that this runs on are.
static_assert(std::endian::native == std::endian::little);

void write_embedding_usage(JsonWriter& writer, const EmbeddingAnswer& answer) {
  writer.key("usage").begin_object().key("prompt_tokens").integer(answer.prompt_tokens);
  writer.key("total_tokens").integer(answer.prompt_tokens).end_object();
}

// What a float is in the fewest digits that distinguish it from its neighbours.
void write_vector(JsonWriter& writer, std::span<const float> values) {
  writer.begin_array();
  char text[40];
  for (const float value : values) {
    const auto end = std::to_chars(text, text + sizeof text, value).ptr;
    writer.raw({text, static_cast<size_t>(end - text)});
  }
  writer.end_array();
}

// Of 1.0 and -2.0: the bytes 00 00 80 3F 00 00 00 C0, "AACAPwAAAMA=".
void write_base64(JsonWriter& writer, std::span<const float> values) {
  const auto* bytes = reinterpret_cast<const char*>(values.data());
  writer.string(base::base64({bytes, values.size_bytes()}));
}

}  // namespace

std::string embed_body(const EmbeddingAnswer& answer, const EmbedAnswer& shown,
                       std::span<const std::vector<float>> embeddings) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_object().key("id").string(answer.id).key("model").string(answer.model);
  writer.key("embeddings").begin_object();
  if (shown.floats) {
    writer.key("float").begin_array();
    for (const std::vector<float>& values : embeddings) write_vector(writer, values);
    writer.end_array();
  }
  if (shown.base64) {
    writer.key("base64").begin_array();
    for (const std::vector<float>& values : embeddings) write_base64(writer, values);
    writer.end_array();
  }
  writer.end_object().key("texts").begin_array();
  for (const std::string& text : shown.texts) writer.string(text);
  writer.end_array().key("meta").begin_object();
  writer.key("api_version").begin_object().key("version").string("2").end_object();
  writer.key("billed_units").begin_object().key("input_tokens").integer(answer.prompt_tokens);
  writer.end_object().end_object();
  writer.key("response_type").string("embeddings_by_type").end_object();
  return body;
}

std::string embedding_body(const EmbeddingAnswer& answer,
                           std::span<const std::vector<float>> embeddings, EmbeddingFormat format) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_object().key("id").string(answer.id).key("object").string("list");
  writer.key("created").integer(answer.created).key("model").string(answer.model);
  writer.key("data").begin_array();
  for (size_t i = 0; i < embeddings.size(); ++i) {
    const std::vector<float>& values = embeddings[i];
    writer.begin_object().key("object").string(answer.is_pooling ? "pooling" : "embedding");
    writer.key("index").integer(static_cast<int64_t>(i));
    writer.key(answer.is_pooling ? "data" : "embedding");
    if (format == EmbeddingFormat::kBase64) {
      write_base64(writer, values);
    } else {
      write_vector(writer, values);
    }
    writer.end_object();
  }
  writer.end_array();
  write_embedding_usage(writer, answer);
  writer.end_object();
  return body;
}

std::string rerank_body(const EmbeddingAnswer& answer, const Ranking& ranking) {
  constexpr size_t kDocumentsPerUnit = 100;
  std::string body;
  JsonWriter writer(body);
  writer.begin_object().key("id").string(answer.id).key("model").string(answer.model);
  write_embedding_usage(writer, answer);
  writer.key("meta").begin_object();
  writer.key("api_version").begin_object().key("version").string(ranking.api_version).end_object();
  const size_t units = (ranking.documents_compared + kDocumentsPerUnit - 1) / kDocumentsPerUnit;
  writer.key("billed_units").begin_object();
  writer.key("search_units").integer(static_cast<int64_t>(units)).end_object();
  writer.key("tokens").begin_object().key("input_tokens").integer(answer.prompt_tokens);
  writer.end_object().end_object();
  writer.key("results").begin_array();
  for (const RankedDocument& document : ranking.documents) {
    writer.begin_object().key("index").integer(static_cast<int64_t>(document.index));
    if (document.text != nullptr) {
      writer.key("document").begin_object().key("text").string(*document.text).end_object();
    }
    writer.key("relevance_score").number(document.score).end_object();
  }
  writer.end_array().end_object();
  return body;
}

std::string score_body(const EmbeddingAnswer& answer, std::span<const double> scores) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_object().key("id").string(answer.id).key("object").string("list");
  writer.key("created").integer(answer.created).key("model").string(answer.model);
  writer.key("data").begin_array();
  for (size_t i = 0; i < scores.size(); ++i) {
    writer.begin_object().key("index").integer(static_cast<int64_t>(i));
    writer.key("object").string("score").key("score").number(scores[i]).end_object();
  }
  writer.end_array();
  write_embedding_usage(writer, answer);
  writer.end_object();
  return body;
}

}  // namespace pelton::api
