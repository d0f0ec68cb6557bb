#include "chat/synthetic_template.h"

namespace pelton::chat {
namespace {

constexpr std::string_view kLlama = R"({{ bos_token }}
{%- macro turn(role, text) %}
{{ '<|start_header_id|>' ~ role ~ '<|end_header_id|>\n\n' ~ text ~ '<|eot_id|>' }}
{%- endmacro %}
{%- if tools %}
{%- set listed = tools | map('tojson') | join('\n') %}
{{- turn('system', 'Functions, called as {"name": ..., "parameters": {...}}:\n' ~ listed) }}
{%- endif %}
{%- for m in messages %}
{%- if m.tool_calls %}
{%- for call in m.tool_calls %}
{%- set f = call.function %}
{{- turn('assistant', {'name': f.name, 'parameters': f.arguments} | tojson) }}
{%- endfor %}
{%- else %}
{{- turn('ipython' if m.role == 'tool' else m.role, m.content | trim) }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %})";

constexpr std::string_view kMistral = R"({{ bos_token }}
{%- if tools %}{{ '[AVAILABLE_TOOLS]' ~ tools | tojson ~ '[/AVAILABLE_TOOLS]' }}{% endif %}
{%- for m in messages %}
{%- if m.tool_calls %}
{%- set calls = namespace(all=[]) %}
{%- for call in m.tool_calls %}
{%- set calls.all = calls.all + [dict(call.function, id=call.id)] %}
{%- endfor %}
{{- '[TOOL_CALLS]' ~ calls.all | tojson ~ eos_token }}
{%- elif m.role == 'assistant' %}
{{- m.content ~ eos_token }}
{%- elif m.role == 'tool' %}
{{- '[TOOL_RESULTS]' ~ {'content': m.content} | tojson ~ '[/TOOL_RESULTS]' }}
{%- else %}
{{- '[INST]' ~ m.content ~ '[/INST]' }}
{%- endif %}
{%- endfor %})";

constexpr std::string_view kGemma = R"({{ bos_token }}
{%- for m in messages %}
{{- '<start_of_turn>' ~ ('model' if m.role == 'assistant' else 'user') }}
{{ m.content | trim }}{{ '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %})";

constexpr std::string_view kDeepSeek = R"({{ bos_token }}
{%- if tools %}{{ tools | tojson ~ '\n\n' }}{% endif %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}
{{- '<｜Assistant｜></think>' ~ (m.content or '') }}
{%- if m.tool_calls %}
{{- '<｜tool▁calls▁begin｜>' }}
{%- for call in m.tool_calls %}
{%- set f = call.function %}
{{- '<｜tool▁call▁begin｜>' ~ f.name ~ '<｜tool▁sep｜>' ~ f.arguments | tojson }}
{{- '<｜tool▁call▁end｜>' }}
{%- endfor %}
{{- '<｜tool▁calls▁end｜>' }}
{%- endif %}
{{- eos_token }}
{%- elif m.role == 'tool' %}
{{- '<｜tool▁output▁begin｜>' ~ m.content ~ '<｜tool▁output▁end｜>' }}
{%- elif m.role == 'user' %}
{{- '<｜User｜>' ~ m.content }}
{%- else %}
{{- m.content }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<｜Assistant｜>' ~ ('<think>' if thinking is defined and thinking else '</think>') }}
{%- endif %})";

constexpr std::string_view kPlain = R"({{ bos_token }}
{%- for m in messages %}
{{- m.role ~ ': ' ~ (m.content | trim) ~ eos_token ~ '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'assistant:' }}{% endif %})";

}  // namespace

std::string_view synthetic_template(std::string_view model_type) {
  if (model_type.starts_with("llama")) return kLlama;
  if (model_type.starts_with("mistral") || model_type.starts_with("mixtral")) return kMistral;
  if (model_type.starts_with("gemma")) return kGemma;
  if (model_type.starts_with("deepseek") || model_type.starts_with("kimi")) return kDeepSeek;
  const bool has_format =
      model_type.empty() || model_type == "gpt_oss" || model_type.starts_with("qwen");
  if (has_format) return {};
  return kPlain;
}

}  // namespace pelton::chat
