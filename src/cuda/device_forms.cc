#include "cuda/device_forms.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include <fmt/format.h>

#include "base/digest.h"
#include "base/file.h"
#include "cuda/form_cache.h"

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

// Steps in the forms that were measured before; what is found is added to them. In a third of the
// time that those had.
Result<void> measure_steps_of(const DeviceLibrary& library, Session* session, const Limits& limits,
                              const FormBudget& budget, MeasuredForms& measured) {
  const DeviceTable& table = library.table();
  table.set_forms(session, &measured.forms);
  TRY(library.check("choosing kernels"));
  const auto seconds_of = [&](const StepTrial& trial) -> Result<double> {
    const double seconds = table.seconds_of_steps(session, &trial);
    TRY(library.check("measuring steps"));
    return seconds;
  };
  const auto now = [] { return seconds_now(); };
  TRY_ASSIGN(const MeasuredSteps steps,
             measure_steps(limits, {.seconds = budget.seconds / 3, .rounds = budget.rounds},
                           {.seconds_of = seconds_of, .now = now}));
  std::copy(std::begin(steps.persistent), std::end(steps.persistent),
            std::begin(measured.forms.persistent));
  measured.contests += steps.contests;
  measured.decided += steps.decided;
  measured.changed += steps.changed;
  measured.failed += steps.failed;
  return {};
}

// The inner result: whether it could be measured. The outer one: whether the device still computes.
Result<Result<MeasuredForms>> measure(const DeviceLibrary& library, const FormDevice& device,
                                      Session* session, const ModelShape& shape,
                                      const Limits& limits, const FormBudget& budget) {
  const DeviceTable& table = library.table();
  table.begin_trials(session, kTrialSeed);
  TRY(library.check("preparing to measure kernels"));
  const auto seconds_of = [&](const ProductTrial& trial) -> Result<double> {
    const double seconds = table.seconds_of(session, &trial);
    TRY(library.check("measuring a kernel"));
    return seconds;
  };
  const auto now = [] { return seconds_now(); };
  Result<MeasuredForms> measured =
      measure_forms(shape, limits, device, budget, {.seconds_of = seconds_of, .now = now});
  if (measured.ok()) {
    const Result<void> steps = measure_steps_of(library, session, limits, budget, *measured);
    if (!steps.ok()) measured = steps.error();
  }
  table.end_trials(session);
  TRY(library.check("after measuring kernels"));
  return measured;
}

// What the device has. Of wgmma it is believed that it adds as mma.sync does, and written nowhere:
// so it is tried, and where it is not so those forms are none of the choice.
Result<FormDevice> find_device(const DeviceLibrary& library, const DeviceInfo& info,
                               Session* session, std::vector<std::string>& problems) {
  FormDevice device{.shared_bytes_max = info.shared_bytes_max};
  if (info.has_wide_forms == 0) return device;
  const DeviceTable& table = library.table();
  table.begin_trials(session, kTrialSeed);
  TRY(library.check("preparing to compare kernels"));
  device.has_wide = table.wide_forms_agree(session) != 0;
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
         const ModelShape& shape, const Limits& limits, const FormOptions& options)
      : library_(library),
        info_(info),
        session_(session),
        shape_(shape),
        limits_(limits),
        options_(options),
        is_gpu_(std::string_view(library.table().kind()) == "cuda") {}

  Result<DeviceForms> run() {
    if (options_.wish == FormWish::kPlain) {
      out_.forms = forms_by_constants(shape_, {info_.shared_bytes_max});
      out_.how = "by constants, without wgmma";
      return std::move(out_);
    }
    TRY_ASSIGN(device_, find_device(library_, info_, session_, out_.problems));
    out_.forms = forms_by_constants(shape_, device_);
    out_.how = "by constants";
    if (options_.wish == FormWish::kDefault) return std::move(out_);
    if (options_.wish == FormWish::kPersistent) {
      std::fill(std::begin(out_.forms.persistent), std::end(out_.forms.persistent), 1);
      out_.how = "by constants, but that steps of few rows are persistent";
      return std::move(out_);
    }
    find_file();
    if (options_.wish == FormWish::kAuto && read()) return std::move(out_);
    if (options_.wish == FormWish::kAuto && !is_gpu_) {
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
    key_ = form_key(info_, build, shape_, limits_);
    file_ = form_file(options_.folder, key_);
  }

  bool read() {
    if (file_.empty()) return false;
    const Result<ProductForms> kept = read_forms(file_, key_, shape_, device_);
    if (kept.ok()) {
      out_.forms = *kept;
      out_.how = "from " + file_;
    } else if (kept.error().code != ErrorCode::kNotFound) {
      out_.problems.push_back("kernel choice is made anew: " + kept.error().message);
    }
    return kept.ok();
  }

  Result<void> measure_now() {
    const double begin = seconds_now();
    TRY_ASSIGN(const Result<MeasuredForms> measured,
               measure(library_, device_, session_, shape_, limits_, options_.budget));
    if (!measured.ok()) {
      out_.how = "by constants: measuring failed";
      out_.problems.push_back("kernels could not be measured: " + measured.error().message);
      return {};
    }
    out_.forms = measured->forms;
    const bool is_whole = measured->decided == measured->contests;
    out_.how = fmt::format("measured in {:.2f} s: {} of {} choices decided, {} not by constants",
                           seconds_now() - begin, measured->decided, measured->contests,
                           measured->changed);
    if (measured->failed > 0) {
      out_.problems.push_back(
          fmt::format("{} forms of kernels cannot run on {}", measured->failed, info_.name));
    }
    if (!is_whole || file_.empty()) {
      out_.how += "; not kept";
      return {};
    }
    const Result<void> kept = write_forms(file_, key_, out_.forms);
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
  const FormOptions& options_;
  const bool is_gpu_;
  FormDevice device_;
  FormKey key_;
  std::string file_;
  DeviceForms out_;
};

}  // namespace

Result<FormWish> parse_form_wish(std::string_view name) {
  if (name == "default") return FormWish::kDefault;
  if (name == "auto") return FormWish::kAuto;
  if (name == "measure") return FormWish::kMeasure;
  if (name == "plain") return FormWish::kPlain;
  if (name == "persistent") return FormWish::kPersistent;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--kernel-choice is 'auto', 'measure', 'default', 'plain' or "
                           "'persistent', not '{}'",
                           name)};
}

Result<DeviceForms> choose_forms(const DeviceLibrary& library, const DeviceInfo& info,
                                 Session* session, const ModelShape& shape, const Limits& limits,
                                 const FormOptions& options) {
  TRY_ASSIGN(DeviceForms chosen, Choice(library, info, session, shape, limits, options).run());
  library.table().set_forms(session, &chosen.forms);
  TRY(library.check("choosing kernels"));
  return chosen;
}

std::string describe(const ProductForms& forms) {
  std::string out;
  for (const ProductKind kind : kAllProducts) {
    if (!out.empty()) out += "; ";
    out += product_name(kind);
    const auto& row = forms.form[static_cast<int>(kind)];
    bool is_first = true;
    for (int bucket = 0; bucket < kRowBucketCount; ++bucket) {
      const bool is_last = bucket == kRowBucketCount - 1;
      if (!is_last && row[bucket + 1] == row[bucket]) continue;
      out += fmt::format("{} {}", is_first ? "" : ",", form_name(row[bucket]));
      if (!is_last) out += fmt::format(" to {} rows", kRowBuckets[bucket]);
      is_first = false;
    }
  }
  for (int bucket = 0; bucket < kPersistentBuckets; ++bucket) {
    if (forms.persistent[bucket] == 0) continue;
    const int first = bucket == 0 ? 1 : kRowBuckets[bucket - 1] + 1;
    out += fmt::format("; steps of {} to {} rows persistent", first, kRowBuckets[bucket]);
  }
  return out;
}

}  // namespace pelton::cuda
