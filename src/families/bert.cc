// BERT and RoBERTa (bge, MiniLM, mxbai, e5, bge-m3, bge-reranker): encoders whose every token sees
// every other, with learned positions, token types, biases everywhere, a LayerNorm behind each half
// of a layer, and an MLP without gate. Sources: transformers' models/bert/modeling_bert.py and
// models/xlm_roberta/modeling_xlm_roberta.py; arXiv 1810.04805, 1911.02116.
#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "families/family.h"

namespace pelton::families {
namespace {

constexpr int64_t kTypesMax = 16;

bool is_bert(const ConfigFields& fields) {
  const Json* type = fields.find("model_type");
  return type == nullptr || *type == Json("bert");
}

Result<Activation> read_activation(const ConfigFields& fields) {
  constexpr std::pair<std::string_view, Activation> kKnown[] = {
      {"gelu", Activation::kGelu},
      {"gelu_new", Activation::kGeluTanh},
      {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"relu", Activation::kRelu},
  };
  const Json* found = fields.find("hidden_act");
  if (found == nullptr) return Activation::kGelu;
  for (const auto& [name, activation] : kKnown) {
    if (*found == Json(name)) return activation;
  }
  return fields.unsupported(
      "hidden_act", fmt::format("is {}; supported: \"gelu\", \"gelu_new\", \"gelu_pytorch_tanh\", "
                                "\"relu\"",
                                shown(*found)));
}

Result<void> read(const ConfigFields& fields, ModelConfig& config) {
  TRY(fields.only("position_embedding_type", Json("absolute")));
  TRY(fields.only("is_decoder", Json(false)));
  TRY(fields.only("add_cross_attention", Json(false)));
  TRY(fields.only("chunk_size_feed_forward", Json(0)));  // of memory alone
  TRY(fields.only("quantization_config", Json(nullptr)));
  TRY(read_sizes(fields, config));
  if (config.kv_head_count != config.head_count ||
      config.head_size * config.head_count != config.hidden_size) {
    return fields.bad("num_attention_heads", fmt::format("({}) must divide hidden_size ({})",
                                                         config.head_count, config.hidden_size));
  }
  TRY_ASSIGN(config.intermediate_size, fields.integer("intermediate_size", {1, kIntermediateMax}));
  EncoderConfig& encoder = config.encoder;
  TRY_ASSIGN(encoder.activation, read_activation(fields));
  TRY_ASSIGN(encoder.layer_norm_epsilon, fields.number("layer_norm_eps", 1e-12, 0.0, 1.0));
  TRY_ASSIGN(encoder.type_rows, fields.integer_or("type_vocab_size", 2, {1, kTypesMax}));
  encoder.position_rows = config.context_max;
  if (!is_bert(fields)) {
    TRY_ASSIGN(const int pad, fields.integer_or("pad_token_id", 1, {0, kContextMax}));
    encoder.first_position = pad + 1;
    config.context_max = encoder.position_rows - encoder.first_position;
    if (config.context_max < 1) {
      return fields.bad("max_position_embeddings",
                        fmt::format("({}) leaves no position behind pad_token_id ({})",
                                    encoder.position_rows, pad));
    }
  }
  config.tied_head = true;  // it has none
  return {};
}

// Of a masked language model the head is left out: what is served are states.
constexpr FamilyAlias kAliases[] = {
    {"BertForMaskedLM", "bert"},
    {"BertForPreTraining", "bert"},
    {"BertForSequenceClassification", "bert"},
    {"RobertaModel", "roberta"},
    {"RobertaForMaskedLM", "roberta"},
    {"RobertaForSequenceClassification", "roberta"},
    {"XLMRobertaModel", "xlm-roberta"},
    {"XLMRobertaForMaskedLM", "xlm-roberta"},
    {"XLMRobertaForSequenceClassification", "xlm-roberta"},
    {"CamembertModel", "camembert"},
    {"CamembertForSequenceClassification", "camembert"},
};

}  // namespace

extern const Family kBert{
    .architecture = "BertModel", .model_type = "bert", .read = read, .aliases = kAliases};

}  // namespace pelton::families
