// Every endpoint of the public listener: a free function that answers one call. The table that says
// which URL leads to which is server/routes.cc. A function is called on the call's net thread and
// must not keep it for long: see server/request_pipeline.h for whatever needs a model.
#pragma once

#include "server/call.h"
#include "server/services.h"

namespace pelton::server {

// Generating.
void chat_completions(Call call, Services& services);   // chat_completions.cc
void chat_input_tokens(Call call, Services& services);  // chat_completions.cc
void control_chat(Call call, Services& services);       // chat_control.cc
void completions(Call call, Services& services);        // completions.cc
void messages(Call call, Services& services);           // messages.cc, also the next
void count_message_tokens(Call call, Services& services);
void generate(Call call, Services& services);     // generate.cc
void invocations(Call call, Services& services);  // invocations.cc
void render_chat(Call call, Services& services);  // render.cc, also the next
void render_completion(Call call, Services& services);

// Responses.
void responses(Call call, Services& services);  // responses.cc, also the next
void response_input_tokens(Call call, Services& services);
void response_socket(Call call, Services& services);  // response_socket_route.cc
void get_response(Call call, Services& services);     // stored_responses.cc, also the next two
void delete_response(Call call, Services& services);
void cancel_response(Call call, Services& services);

// Chains.
void list_chains(Call call, Services& services);  // chain_routes.cc, also the next
void run_chain(Call call, Services& services);

// Files and batches.
void upload_file(Call call, Services& services);  // files.cc, also the next three
void list_files(Call call, Services& services);
void get_file(Call call, Services& services);
void delete_file(Call call, Services& services);
void create_batch(Call call, Services& services);  // batch_routes.cc, also the next three
void list_batches(Call call, Services& services);
void get_batch(Call call, Services& services);
void cancel_batch(Call call, Services& services);

// Ollama's.
void ollama_chat(Call call, Services& services);  // ollama.cc, also the next five
void ollama_generate(Call call, Services& services);
void ollama_embed(Call call, Services& services);
void ollama_tags(Call call, Services& services);
void ollama_ps(Call call, Services& services);
void ollama_show(Call call, Services& services);

// llama.cpp's, TGI's and SGLang's.
void llama_completion(Call call, Services& services);  // text_routes.cc, also the next six
void any_generate(Call call, Services& services);
void generate_stream(Call call, Services& services);
void apply_template(Call call, Services& services);
void llama_props(Call call, Services& services);
void llama_slots(Call call, Services& services);
void modality_missing(Call call, Services& services);

// Vectors.
void pooling(Call call, Services& services);     // embeddings.cc
void embeddings(Call call, Services& services);  // embeddings.cc, also the next three
void embed(Call call, Services& services);
void rerank(Call call, Services& services);
void score(Call call, Services& services);

void tei_embed(Call call, Services& services);  // tei.cc, also the next six
void tei_embed_all(Call call, Services& services);
void tei_embed_sparse(Call call, Services& services);
void tei_similarity(Call call, Services& services);
void rerank_any(Call call, Services& services);
void predict(Call call, Services& services);
void classify(Call call, Services& services);
void tei_info(Call call, Services& services);

// Speech.
void transcriptions(Call call, Services& services);  // transcriptions.cc, also the next
void translations(Call call, Services& services);
void create_speech(Call call, Services& services);  // speech.cc, also the next
void list_voices(Call call, Services& services);
void speech_socket(Call call, Services& services);  // speech_socket_route.cc
void realtime(Call call, Services& services);       // realtime_route.cc

// Tokens.
void tokenize(Call call, Services& services);  // tokenize.cc, also the next
void detokenize(Call call, Services& services);

// The server and its models.
void list_models(Call call, Services& services);  // server_endpoints.cc, also the next five
void get_model(Call call, Services& services);
void get_model_card(Call call, Services& services);
void metrics(Call call, Services& services);
void version(Call call, Services& services);
void index(Call call, Services& services);
void openapi(Call call, Services& services);       // openapi.cc
void console_page(Call call, Services& services);  // console_page.cc
void health(Call call, Services& services);        // health.cc, also the next five
void live(Call call, Services& services);
void ready(Call call, Services& services);
void ping(Call call, Services& services);
void server_info(Call call, Services& services);
void load(Call call, Services& services);
void sleep(Call call, Services& services);  // sleep.cc, also the next three
void wake_up(Call call, Services& services);
void is_sleeping(Call call, Services& services);
void reset_prefix_cache(Call call, Services& services);
void erase_tenant(Call call, Services& services);       // erase.cc
void load_lora_adapter(Call call, Services& services);  // lora.cc, also the next
void unload_lora_adapter(Call call, Services& services);

}  // namespace pelton::server
