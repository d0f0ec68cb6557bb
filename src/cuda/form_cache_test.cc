// Tables of forms in files: read as written, and refused if anything about them is wrong.
#include "cuda/form_cache.h"

#include <cstdlib>
#include <filesystem>
#include <random>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "cuda/gpt_oss_shape.h"

namespace pelton::cuda {
namespace {

constexpr FormDevice kDevice = {227 << 10, true};
const ModelShape kShape = gpt_oss_shape();

FormKey key(const char* name = "NVIDIA H100 80GB HBM3") {
  DeviceInfo info = {};
  std::snprintf(info.name, sizeof info.name, "%s", name);
  info.compute_major = 9;
  info.driver_version = 13000;
  info.runtime_version = 13000;
  return form_key(info, "cuda 2, abc", kShape, {.rows_max = 512, .logit_rows_max = 64});
}

// A usable table, drawn.
ProductForms random_forms(std::mt19937& random) {
  ProductForms forms;
  for (const ProductKind kind : kAllProducts) {
    for (ProductForm& form : forms.form[static_cast<int>(kind)]) {
      const auto known = forms_of(kind);
      do {
        form = known[random() % known.size()];
      } while (!is_usable(kShape, kind, form, kDevice));
    }
  }
  for (int b = 0; b < kRowBucketCount; ++b) {
    forms.form[static_cast<int>(ProductKind::kDown)][b] =
        forms.form[static_cast<int>(ProductKind::kGateUp)][b];
  }
  for (int32_t& is_persistent : forms.persistent)
    is_persistent = static_cast<int32_t>(random() % 2);
  return forms;
}

class FormCacheTest : public ::testing::Test {
 protected:
  FormCacheTest() {
    folder_ = (std::filesystem::temp_directory_path() /
               ("pelton_forms_" + std::to_string(std::random_device{}())))
                  .string();
  }
  ~FormCacheTest() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
  std::mt19937 random_{std::random_device{}()};
};

TEST_F(FormCacheTest, ReadAsWritten) {
  for (int run = 0; run < 50; ++run) {
    const ProductForms forms = random_forms(random_);
    const std::string file = form_file(folder_ + "/deep/er", key());
    ASSERT_TRUE(write_forms(file, key(), forms).ok());
    const auto read = read_forms(file, key(), kShape, kDevice);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(*read, forms);
  }
  // Nothing but the file is left.
  int files = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(folder_ + "/deep/er")) {
    ++files;
  }
  EXPECT_EQ(files, 1);
}

TEST_F(FormCacheTest, WhatItIsForDecides) {
  const std::string text = forms_text(key(), forms_by_constants(kShape, kDevice));
  const auto refused = [&](const FormKey& other) {
    EXPECT_NE(form_file(folder_, other), form_file(folder_, key()));
    const auto parsed = parse_forms(text, other, kShape, kDevice);
    return !parsed.ok() && parsed.error().message.find("another GPU") != std::string::npos;
  };
  FormKey other = key();
  other.driver = 12080;
  EXPECT_TRUE(refused(other));
  other = key();
  other.runtime = 12080;
  EXPECT_TRUE(refused(other));
  other = key();
  other.library = "cuda 2, abd";
  EXPECT_TRUE(refused(other));
  other = key();
  other.compute = "10.0";
  EXPECT_TRUE(refused(other));
  EXPECT_TRUE(refused(key("NVIDIA H200")));
  other = key();
  ModelShape shape = kShape;
  shape.layers = 3;
  other.model = form_key({}, "", shape, {.rows_max = 512, .logit_rows_max = 64}).model;
  EXPECT_TRUE(refused(other));
  other.model = form_key({}, "", kShape, {.rows_max = 1024, .logit_rows_max = 64}).model;
  EXPECT_TRUE(refused(other));
}

TEST_F(FormCacheTest, AnotherShapesOrSmallerDevicesFormsAreRefused) {
  ProductForms forms = forms_by_constants(kShape, kDevice);
  forms.form[static_cast<int>(ProductKind::kQkv)][2] = {32, 2};
  const std::string text = forms_text(key(), forms);
  EXPECT_TRUE(parse_forms(text, key(), kShape, kDevice).ok());
  const auto parsed = parse_forms(text, key(), kShape, {163 << 10, true});
  ASSERT_FALSE(parsed.ok());
  EXPECT_NE(parsed.error().message.find("cannot take"), std::string::npos);
}

TEST_F(FormCacheTest, DamageIsAnErrorThatNamesTheFile) {
  const ProductForms forms = forms_by_constants(kShape, kDevice);
  const std::string good = forms_text(key(), forms);
  const auto broken = [&](const std::string& text) {
    const auto parsed = parse_forms(text, key(), kShape, kDevice);
    if (!parsed.ok()) {
      EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
    }
    return !parsed.ok();
  };
  ASSERT_FALSE(broken(good));
  for (size_t length = 0; length + 1 < good.size(); ++length) {
    EXPECT_TRUE(broken(good.substr(0, length))) << length;
  }
  EXPECT_TRUE(broken(good + "x"));
  EXPECT_TRUE(broken(std::string(kFormFileBytesMax + 1, ' ')));
  const auto change = [&](const std::function<void(Json&)>& edit) {
    Json json = *Json::parse(good);
    edit(json);
    return json.dump();
  };
  EXPECT_TRUE(broken(change([](Json& json) { json.set("format", 1); })));
  for (const Json& persistent :
       {Json(1), Json(Json::Array(1, Json(0))), Json(Json::Array(3, Json(0))),
        Json(Json::Array(2, Json(2))), Json(Json::Array(2, Json("1")))}) {
    EXPECT_TRUE(broken(change([&](Json& json) { json.set("persistent", persistent); })));
  }
  EXPECT_TRUE(broken(change([](Json& json) { json.set("more", 1); })));
  EXPECT_TRUE(broken(change([](Json& json) { json.set("forms", 1); })));
  const auto with_row = [&](Json row) {
    return change([&](Json& json) {
      for (Json::Member& member : json.as_object()) {
        if (member.key == "forms") member.value.set("head", row);
      }
    });
  };
  EXPECT_TRUE(broken(with_row("8x1")));
  EXPECT_TRUE(broken(with_row(Json::Array(9, Json("8x1")))));
  EXPECT_TRUE(broken(with_row(Json::Array(11, Json("8x1")))));
  EXPECT_TRUE(broken(with_row(Json::Array(10, Json("8x3")))));
  EXPECT_TRUE(broken(with_row(Json::Array(10, Json(8)))));
  EXPECT_FALSE(broken(with_row(Json::Array(10, Json("8x1")))));

  const std::string file = form_file(folder_, key());
  EXPECT_EQ(read_forms(file, key(), kShape, kDevice).error().code, ErrorCode::kNotFound);
  std::filesystem::create_directories(folder_);
  ASSERT_TRUE(base::write_file(file, "{}").ok());
  const auto read = read_forms(file, key(), kShape, kDevice);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find(file), std::string::npos);
  ASSERT_TRUE(base::write_file(file, std::string(1 << 20, 'x')).ok());
  EXPECT_FALSE(read_forms(file, key(), kShape, kDevice).ok());
}

// A driver's name for a GPU is foreign text too.
TEST_F(FormCacheTest, AGpusNameMakesAFileNameOfThisFolder) {
  for (const char* name : {"../../etc/passwd", "a/b", "\xff\xfe", "", "..", "GPU \"x\"\n"}) {
    const std::string file = form_file(folder_, key(name));
    EXPECT_EQ(std::filesystem::path(file).parent_path().string(), folder_);
    ASSERT_TRUE(write_forms(file, key(name), forms_by_constants(kShape, kDevice)).ok()) << name;
    EXPECT_TRUE(read_forms(file, key(name), kShape, kDevice).ok()) << name;
  }
}

TEST_F(FormCacheTest, AFolderThatCannotBeIsAnError) {
  const auto written =
      write_forms("/proc/nowhere/x.json", key(), forms_by_constants(kShape, kDevice));
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace pelton::cuda
