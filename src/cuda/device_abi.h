// What a device library is to the rest of Pelton: one table of functions, found under one name in a
// shared library that is opened at run time (device_library.h), so that the binary itself knows of
// no CUDA. Two libraries have it: libpelton_cuda (nvcc) and libpelton_cuda_emulated (the same
// sources on the host, for tests). Plain data; both sides are built from this header, and a library
// of another version is refused.
//
// Every function that can fail leaves a failure instead of throwing; `failure` hands it out once.
// One thread at a time for one session.
#pragma once

#include <cstdint>

#include "cuda/arena.h"
#include "cuda/kernel_configs.h"
#include "cuda/operations.h"

namespace pelton::cuda {

inline constexpr uint32_t kAbiVersion = 10;
inline constexpr const char* kAbiSymbol = "pelton_device_library";

// The most that `stage` hands out at a time.
inline constexpr int64_t kStagedBytes = int64_t{32} << 20;

struct DeviceInfo {
  char name[128];
  int32_t compute_major;
  int32_t compute_minor;
  int32_t multiprocessors;
  int32_t driver_version;   // as CUDA counts: 13000 is 13.0
  int32_t runtime_version;  // the library's
  int64_t cache_bytes;
  int64_t memory_bytes;
  int64_t memory_free_bytes;
  int64_t shared_bytes_max;  // of a block
  int32_t has_wide_configs;  // wgmma, in the device and in the library
};

// One step, flat: the rows of all sequences one after the other.
struct StepSequence {
  int32_t start;  // position of its first row
  int32_t count;
  // By KV group, then by position / 16, as far as the step needs them.
  const int32_t* blocks[kKvGroupsMax];
};
struct Step {
  const int32_t* tokens;  // below 0: what row ~token of the logits of the step before gave
  int32_t row_count;
  const StepSequence* sequences;
  int32_t sequence_count;
  const int32_t* logit_rows;  // each at most once
  int32_t logit_row_count;
  const Sampling* sampling;  // null: all logits are copied out, nothing is drawn
  Sampled sampled;           // else: what was drawn
};

// One product of a session's model by itself.
struct ProductTrial {
  ProductKind kind;
  KernelConfig config;
  int32_t rows;      // of activations (of logits, for the head), within the session's limits
  int32_t launches;  // one after the other, each with the next layer's weights
};
// Whole steps, without drawing, of so many sequences that decode one token each.
struct StepTrial {
  int32_t rows;           // within the session's limits, kPersistentRowsMax at most
  int32_t is_persistent;  // 0: launched kernel by kernel
  int32_t steps;          // one after the other
};
// The head's first rows are enough: more bytes than a cache holds, more blocks than run at once.
inline constexpr int32_t kTrialHeadRows = 32768;

struct Session;

struct DeviceTable {
  uint32_t version;
  uint32_t table_bytes;
  const char* (*kind)();     // "cuda" or "emulated"
  const char* (*failure)();  // since it was last asked; null: none. Good until the next call

  int32_t (*device_count)();
  void (*device_info)(int32_t index, DeviceInfo* info);

  // A device's memory laid out as arena_layout() says, all zero. Null: a failure.
  Session* (*open)(int32_t index, const ModelShape* shape, const Limits* limits);
  void (*close)(Session* session);
  void (*write)(Session* session, int64_t offset, const void* from, int64_t bytes);
  // The same for much at once, without waiting: pinned memory of up to kStagedBytes to fill, and
  // its copying, which goes on while the next is filled. What was staged is sent before the next is
  // staged. Everything has arrived after `finish_sending`, and before it no step is taken. Null: a
  // failure.
  void* (*stage)(Session* session, int64_t bytes);
  void (*send)(Session* session, const void* staged, int64_t offset, int64_t bytes);
  void (*finish_sending)(Session* session);
  void (*read)(Session* session, int64_t offset, void* to, int64_t bytes);
  void (*copy)(Session* session, int64_t to, int64_t from, int64_t bytes);
  void (*set_factors)(Session* session, int32_t layer, float gate_up, float down);
  // The configs that steps from here on compute in; without it by constants. A table with a config
  // that the device cannot take is a failure, and changes nothing.
  void (*set_configs)(Session* session, const KernelConfigs* configs);
  // Between the two ends, and with no step between them: seconds on the device of a trial, negative
  // for a failure. Weights, keys and values stay what they are.
  void (*begin_trials)(Session* session, uint64_t seed);
  double (*seconds_of)(Session* session, const ProductTrial* trial);
  double (*seconds_of_steps)(Session* session, const StepTrial* trial);
  void (*end_trials)(Session* session);
  // Between them, too: 1 where wide configs give the bits of others on this device. 0 is also a
  // failure's answer.
  int32_t (*wide_configs_agree)(Session* session);
  // Logits: float (logit_row_count, vocab), the caller's to overwrite until the next step; of rows
  // that were drawn from, none. Null: a failure, or no row wanted any. After it the residual stream
  // of all rows lies at its place.
  float* (*step)(Session* session, const Step* step);
  // The same in two: a step may begin before the one before it is finished, two at most, if the
  // rows of both are drawn from on the device. `step->sampled` is written when it finishes.
  void (*begin_step)(Session* session, const Step* step);
  int32_t (*is_step_done)(Session* session);  // the oldest, whether finishing it would wait
  float* (*finish_step)(Session* session);    // the oldest
  // Times the device has been at work for the steps so far, and how many were replayed graphs.
  void (*step_counts)(Session* session, int64_t* steps, int64_t* replayed, int64_t* graphs);

  // For tests and benchmarks: memory and single operations, on device `use_device` chose, on a
  // stream of their own that `wait` waits for.
  void (*use_device)(int32_t index);
  void* (*allocate)(int64_t bytes);
  void (*release)(void* memory);
  void (*to_device)(void* to, const void* from, int64_t bytes);
  void (*to_host)(void* to, const void* from, int64_t bytes);
  void (*fill)(void* to, uint8_t value, int64_t bytes);
  void (*wait)();
  void (*mark)(int32_t which);        // 0 or 1: now, in the stream's order
  double (*seconds_between_marks)();  // from mark 0 to mark 1; waits for both
  void (*set_seed)(uint64_t seed);    // the order of an emulation's threads

  void (*embed)(const Embed* args);
  void (*norm)(const Norm* args);
  void (*choose)(const Choose* args);
  void (*group)(const Group* args);
  void (*linear)(const Linear* args);
  void (*qkv)(const Qkv* args);
  void (*store_kv)(const StoreKv* args);
  void (*gate_up)(const GateUp* args);
  void (*down)(const Down* args);
  void (*attention)(const Attention* args);
  void (*sample)(const Sample* args);
  void (*randomize)(const Randomize* args);
  void (*copy_device)(void* to, const void* from, int64_t bytes);  // device to device
  // Weights, keys and values of a seed, so that a model's speed can be measured without its files.
  void (*randomize_session)(Session* session, uint64_t seed);
};

}  // namespace pelton::cuda

extern "C" const pelton::cuda::DeviceTable* pelton_device_library();
