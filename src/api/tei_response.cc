#include "api/tei_response.h"

#include <algorithm>
#include <charconv>

#include "base/json_writer.h"

namespace pelton::api {
namespace {

using base::JsonWriter;

void write_float(JsonWriter& writer, float value) {
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  writer.raw({text, static_cast<size_t>(end - text)});
}

void write_vector(JsonWriter& writer, std::span<const float> values) {
  writer.begin_array();
  for (const float value : values) write_float(writer, value);
  writer.end_array();
}

void write_prediction(JsonWriter& writer, std::vector<LabelScore> scores) {
  std::ranges::stable_sort(scores, std::ranges::greater{}, &LabelScore::score);
  writer.begin_array();
  for (const LabelScore& one : scores) {
    writer.begin_object().key("label").string(one.label);
    writer.key("score").number(one.score).end_object();
  }
  writer.end_array();
}

}  // namespace

std::string tei_vectors_body(std::span<const std::vector<float>> vectors) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_array();
  for (const std::vector<float>& vector : vectors) write_vector(writer, vector);
  writer.end_array();
  return body;
}

std::string tei_states_body(std::span<const std::vector<float>> states, size_t size) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_array();
  for (const std::vector<float>& text : states) {
    writer.begin_array();
    for (size_t at = 0; at + size <= text.size(); at += size) {
      write_vector(writer, std::span(text).subspan(at, size));
    }
    writer.end_array();
  }
  writer.end_array();
  return body;
}

std::string tei_sparse_body(std::span<const SparseVector> vectors) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_array();
  for (const SparseVector& vector : vectors) {
    writer.begin_array();
    for (const auto& [id, weight] : vector) {
      writer.begin_object().key("index").integer(id).key("value");
      write_float(writer, weight);
      writer.end_object();
    }
    writer.end_array();
  }
  writer.end_array();
  return body;
}

std::string tei_similarity_body(std::span<const double> scores) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_array();
  for (const double score : scores) writer.number(score);
  writer.end_array();
  return body;
}

std::string tei_ranking_body(std::span<const RankedDocument> documents) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_array();
  for (const RankedDocument& document : documents) {
    writer.begin_object().key("index").integer(static_cast<int64_t>(document.index));
    if (document.text != nullptr) writer.key("text").string(*document.text);
    writer.key("score").number(document.score).end_object();
  }
  writer.end_array();
  return body;
}

std::string tei_predictions_body(const Predictions& predictions) {
  std::string body;
  JsonWriter writer(body);
  if (predictions.is_single) {
    write_prediction(writer, predictions.texts[0]);
    return body;
  }
  writer.begin_array();
  for (const std::vector<LabelScore>& scores : predictions.texts) write_prediction(writer, scores);
  writer.end_array();
  return body;
}

std::string classify_body(const EmbeddingAnswer& answer,
                          std::span<const std::vector<LabelScore>> texts) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_object().key("id").string(answer.id).key("object").string("list");
  writer.key("created").integer(answer.created).key("model").string(answer.model);
  writer.key("data").begin_array();
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto best = std::ranges::max_element(texts[i], {}, &LabelScore::score);
    writer.begin_object().key("index").integer(static_cast<int64_t>(i));
    writer.key("label").string(best->label).key("probs").begin_array();
    for (const LabelScore& one : texts[i]) writer.number(one.score);
    writer.end_array();
    writer.key("num_classes").integer(static_cast<int64_t>(texts[i].size())).end_object();
  }
  writer.end_array().key("usage").begin_object();
  writer.key("prompt_tokens").integer(answer.prompt_tokens);
  writer.key("total_tokens").integer(answer.prompt_tokens);
  writer.key("completion_tokens").integer(0).end_object().end_object();
  return body;
}

std::string tei_info_body(const TeiInfo& info) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_object().key("model_id").string(info.model_id);
  writer.key("model_dtype").string(info.dtype).key("model_type").begin_object();
  if (info.labels.empty()) {
    writer.key("embedding").begin_object().key("pooling").string(info.pooling).end_object();
  } else {
    writer.key(info.is_reranker ? "reranker" : "classifier").begin_object();
    writer.key("id2label").begin_object();
    for (size_t i = 0; i < info.labels.size(); ++i) {
      writer.key(std::to_string(i)).string(info.labels[i]);
    }
    writer.end_object().key("label2id").begin_object();
    for (size_t i = 0; i < info.labels.size(); ++i) {
      writer.key(info.labels[i]).integer(static_cast<int64_t>(i));
    }
    writer.end_object().end_object();
  }
  writer.end_object().key("max_input_length").integer(info.max_input_length);
  writer.key("max_batch_tokens").integer(info.max_batch_tokens);
  writer.key("max_client_batch_size").integer(info.max_client_batch_size);
  writer.key("version").string(info.version).end_object();
  return body;
}

}  // namespace pelton::api
