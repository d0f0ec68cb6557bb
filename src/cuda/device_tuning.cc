#include "cuda/device_tuning.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include <fmt/format.h>

#include "base/digest.h"
#include "base/file.h"
#include "cuda/tuning_cache.h"

namespace pelton::cuda {
namespace {

constexpr uint64_t kTrialSeed = 1;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The file itself: another build may have the same version and other kernels.
std::string build_of(const DeviceLibrary& library) {
  const Result<base::MappedFile> file = base::MappedFile::open(library.path());
  if (!file.ok()) return "";
  const std::span<const uint8_t> bytes = file->bytes();
  const std::string digest =
      base::sha256({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return fmt::format("{} {}, {}", library.table().kind(), kAbiVersion, digest);
}

// Steps in the configs that were measured before; what is found is added to them. In a third of the
// time that those had.
Result<void> measure_steps_of(const DeviceLibrary& library, Session* session, const Limits& limits,
                              const TuningBudget& budget, TunedConfigs& measured) {
  const DeviceTable& table = library.table();
  table.set_configs(session, &measured.configs);
  TRY(library.check("choosing kernels"));
  const auto seconds_of = [&](const StepTrial& trial) -> Result<double> {
    const double seconds = table.seconds_of_steps(session, &trial);
    TRY(library.check("measuring steps"));
    return seconds;
  };
  const auto now = [] { return seconds_now(); };
  TRY_ASSIGN(const TunedSteps steps,
             tune_steps(limits, {.seconds = budget.seconds / 3, .rounds = budget.rounds},
                        {.seconds_of = seconds_of, .now = now}));
  std::copy(std::begin(steps.persistent), std::end(steps.persistent),
            std::begin(measured.configs.persistent));
  measured.tasks += steps.tasks;
  measured.decided += steps.decided;
  measured.changed += steps.changed;
  measured.failed += steps.failed;
  return {};
}

// The inner result: whether it could be measured. The outer one: whether the device still computes.
Result<Result<TunedConfigs>> measure(const DeviceLibrary& library, const KernelDevice& device,
                                     Session* session, const ModelShape& shape,
                                     const Limits& limits, const TuningBudget& budget) {
  const DeviceTable& table = library.table();
  table.begin_trials(session, kTrialSeed);
  TRY(library.check("preparing to measure kernels"));
  const auto seconds_of = [&](const ProductTrial& trial) -> Result<double> {
    const double seconds = table.seconds_of(session, &trial);
    TRY(library.check("measuring a kernel"));
    return seconds;
  };
  const auto now = [] { return seconds_now(); };
  Result<TunedConfigs> measured =
      tune_products(shape, limits, device, budget, {.seconds_of = seconds_of, .now = now});
  if (measured.ok()) {
    const Result<void> steps = measure_steps_of(library, session, limits, budget, *measured);
    if (!steps.ok()) measured = steps.error();
  }
  table.end_trials(session);
  TRY(library.check("after measuring kernels"));
  return measured;
}

// What the device has. Of wgmma it is believed that it adds as mma.sync does, and written nowhere:
// so it is tried, and where it is not so those configs are none of the choice.
Result<KernelDevice> find_device(const DeviceLibrary& library, const DeviceInfo& info,
                                 Session* session, std::vector<std::string>& problems) {
  KernelDevice device{.shared_bytes_max = info.shared_bytes_max};
  if (info.has_wide_configs == 0) return device;
  const DeviceTable& table = library.table();
  table.begin_trials(session, kTrialSeed);
  TRY(library.check("preparing to compare kernels"));
  device.has_wide = table.wide_configs_agree(session) != 0;
  const Result<void> compared = library.check("comparing kernels");
  table.end_trials(session);
  TRY(library.check("after comparing kernels"));
  if (!compared.ok()) {
    device.has_wide = false;
    problems.push_back("kernels by wgmma are not used: " + compared.error().message);
  } else if (!device.has_wide) {
    problems.push_back(fmt::format(
        "kernels by wgmma are not used: on {} they give other bits than the rest", info.name));
  }
  return device;
}

class Choice {
 public:
  Choice(const DeviceLibrary& library, const DeviceInfo& info, Session* session,
         const ModelShape& shape, const Limits& limits, const TuningOptions& options)
      : library_(library),
        info_(info),
        session_(session),
        shape_(shape),
        limits_(limits),
        options_(options),
        is_gpu_(std::string_view(library.table().kind()) == "cuda") {}

  Result<DeviceTuning> run() {
    if (options_.mode == TuningMode::kPlain) {
      out_.configs = default_configs(shape_, {info_.shared_bytes_max});
      out_.how = "by constants, without wgmma";
      return std::move(out_);
    }
    TRY_ASSIGN(device_, find_device(library_, info_, session_, out_.problems));
    out_.configs = default_configs(shape_, device_);
    out_.how = "by constants";
    if (options_.mode == TuningMode::kDefault) return std::move(out_);
    if (options_.mode == TuningMode::kPersistent) {
      std::fill(std::begin(out_.configs.persistent), std::end(out_.configs.persistent), 1);
      out_.how = "by constants, but that steps of few rows are persistent";
      return std::move(out_);
    }
    find_file();
    if (options_.mode == TuningMode::kAuto && read()) return std::move(out_);
    if (options_.mode == TuningMode::kAuto && !is_gpu_) {
      out_.how = "by constants: times of this device mean nothing";
      return std::move(out_);
    }
    TRY(measure_now());
    return std::move(out_);
  }

 private:
  void find_file() {
    const std::string build = options_.folder.empty() ? "" : build_of(library_);
    if (build.empty()) return;
    key_ = tuning_key(info_, build, shape_, limits_);
    file_ = tuning_file(options_.folder, key_);
  }

  bool read() {
    if (file_.empty()) return false;
    const Result<KernelConfigs> kept = read_tuning(file_, key_, shape_, device_);
    if (kept.ok()) {
      out_.configs = *kept;
      out_.how = "from " + file_;
    } else if (kept.error().code != ErrorCode::kNotFound) {
      out_.problems.push_back("kernel choice is made anew: " + kept.error().message);
    }
    return kept.ok();
  }

  Result<void> measure_now() {
    const double begin = seconds_now();
    TRY_ASSIGN(const Result<TunedConfigs> measured,
               measure(library_, device_, session_, shape_, limits_, options_.budget));
    if (!measured.ok()) {
      out_.how = "by constants: measuring failed";
      out_.problems.push_back("kernels could not be measured: " + measured.error().message);
      return {};
    }
    out_.configs = measured->configs;
    const bool is_whole = measured->decided == measured->tasks;
    out_.how =
        fmt::format("measured in {:.2f} s: {} of {} choices decided, {} not by constants",
                    seconds_now() - begin, measured->decided, measured->tasks, measured->changed);
    if (measured->failed > 0) {
      out_.problems.push_back(
          fmt::format("{} configs of kernels cannot run on {}", measured->failed, info_.name));
    }
    if (!is_whole || file_.empty()) {
      out_.how += "; not kept";
      return {};
    }
    const Result<void> kept = write_tuning(file_, key_, out_.configs);
    if (kept.ok()) {
      out_.how += ", kept in " + file_;
    } else {
      out_.how += "; not kept";
      out_.problems.push_back("kernel choice is not kept: " + kept.error().message);
    }
    return {};
  }

  const DeviceLibrary& library_;
  const DeviceInfo& info_;
  Session* const session_;
  const ModelShape& shape_;
  const Limits& limits_;
  const TuningOptions& options_;
  const bool is_gpu_;
  KernelDevice device_;
  TuningKey key_;
  std::string file_;
  DeviceTuning out_;
};

}  // namespace

Result<TuningMode> parse_tuning_mode(std::string_view name) {
  if (name == "default") return TuningMode::kDefault;
  if (name == "auto") return TuningMode::kAuto;
  if (name == "measure") return TuningMode::kMeasure;
  if (name == "plain") return TuningMode::kPlain;
  if (name == "persistent") return TuningMode::kPersistent;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--kernel-choice is 'auto', 'measure', 'default', 'plain' or "
                           "'persistent', not '{}'",
                           name)};
}

Result<DeviceTuning> choose_configs(const DeviceLibrary& library, const DeviceInfo& info,
                                    Session* session, const ModelShape& shape, const Limits& limits,
                                    const TuningOptions& options) {
  TRY_ASSIGN(DeviceTuning chosen, Choice(library, info, session, shape, limits, options).run());
  library.table().set_configs(session, &chosen.configs);
  TRY(library.check("choosing kernels"));
  return chosen;
}

std::string describe(const KernelConfigs& configs) {
  std::string out;
  for (const ProductKind kind : kAllProducts) {
    if (!out.empty()) out += "; ";
    out += product_name(kind);
    const auto& row = configs.config[static_cast<int>(kind)];
    bool is_first = true;
    for (int bucket = 0; bucket < kRowBucketCount; ++bucket) {
      const bool is_last = bucket == kRowBucketCount - 1;
      if (!is_last && row[bucket + 1] == row[bucket]) continue;
      out += fmt::format("{} {}", is_first ? "" : ",", config_name(row[bucket]));
      if (!is_last) out += fmt::format(" to {} rows", kRowBuckets[bucket]);
      is_first = false;
    }
  }
  for (int bucket = 0; bucket < kPersistentBuckets; ++bucket) {
    if (configs.persistent[bucket] == 0) continue;
    const int first = bucket == 0 ? 1 : kRowBuckets[bucket - 1] + 1;
    out += fmt::format("; steps of {} to {} rows persistent", first, kRowBuckets[bucket]);
  }
  return out;
}

}  // namespace pelton::cuda
