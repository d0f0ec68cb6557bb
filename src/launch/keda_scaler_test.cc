#include "launch/keda_scaler.h"

#include <mutex>

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <keda/external_scaler.grpc.pb.h>

namespace pelton::launch {
namespace {

namespace keda = externalscaler;

class KedaScalerTest : public testing::Test {
 protected:
  void SetUp() override {
    pools_ = {{.pool = "main", .acts = false}, {.pool = "own", .acts = true}};
    scaler_ = KedaScaler::open({.streams_max = 2}, [this] {
                std::lock_guard lock(mutex_);
                return pools_;
              }).value();
    stub_ = keda::ExternalScaler::NewStub(grpc::CreateChannel(
        "127.0.0.1:" + std::to_string(scaler_->port()), grpc::InsecureChannelCredentials()));
  }
  void desire(int replicas) {
    std::lock_guard lock(mutex_);
    pools_[0].decision.desired = replicas;
  }
  static keda::ScaledObjectRef of(const std::string& pool) {
    keda::ScaledObjectRef asked;
    asked.set_name("workers");
    if (!pool.empty()) (*asked.mutable_scalermetadata())["pool"] = pool;
    return asked;
  }
  grpc::StatusCode refused(const std::string& pool, std::string* why = nullptr) {
    grpc::ClientContext context;
    keda::IsActiveResponse answer;
    const grpc::Status status = stub_->IsActive(&context, of(pool), &answer);
    if (why != nullptr) *why = status.error_message();
    return status.error_code();
  }

  std::mutex mutex_;
  std::vector<FleetScaler::PoolState> pools_;
  std::unique_ptr<KedaScaler> scaler_;
  std::unique_ptr<keda::ExternalScaler::Stub> stub_;
};

TEST_F(KedaScalerTest, TheMetricIsTheDesiredNumber) {
  desire(3);
  keda::GetMetricSpecResponse spec;
  grpc::ClientContext first;
  ASSERT_TRUE(stub_->GetMetricSpec(&first, of("main"), &spec).ok());
  ASSERT_EQ(spec.metricspecs_size(), 1);
  EXPECT_EQ(spec.metricspecs(0).targetsize(), 1);
  keda::GetMetricsRequest request;
  *request.mutable_scaledobjectref() = of("main");
  request.set_metricname(spec.metricspecs(0).metricname());
  keda::GetMetricsResponse metrics;
  grpc::ClientContext second;
  ASSERT_TRUE(stub_->GetMetrics(&second, request, &metrics).ok());
  ASSERT_EQ(metrics.metricvalues_size(), 1);
  EXPECT_EQ(metrics.metricvalues(0).metricname(), spec.metricspecs(0).metricname());
  EXPECT_EQ(metrics.metricvalues(0).metricvalue(), 3);
  EXPECT_EQ(metrics.metricvalues(0).metricvaluefloat(), 3);
}

TEST_F(KedaScalerTest, AFirstRequestIsPushed) {
  grpc::ClientContext context;
  const auto reader = stub_->StreamIsActive(&context, of("main"));
  keda::IsActiveResponse answer;
  ASSERT_TRUE(reader->Read(&answer));
  EXPECT_FALSE(answer.result());
  desire(1);
  ASSERT_TRUE(reader->Read(&answer));
  EXPECT_TRUE(answer.result());
  desire(4);
  desire(0);
  ASSERT_TRUE(reader->Read(&answer));
  EXPECT_FALSE(answer.result());
  scaler_.reset();
  EXPECT_FALSE(reader->Read(&answer));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(KedaScalerTest, WhatCannotBeScaledIsRefusedByName) {
  std::string why;
  EXPECT_EQ(refused("", &why), grpc::INVALID_ARGUMENT);
  EXPECT_NE(why.find("'pool'"), std::string::npos) << why;
  EXPECT_EQ(refused("mian", &why), grpc::NOT_FOUND);
  EXPECT_NE(why.find("'main', 'own'"), std::string::npos) << why;
  EXPECT_EQ(refused("own", &why), grpc::FAILED_PRECONDITION);
  EXPECT_NE(why.find("advise"), std::string::npos) << why;
  EXPECT_EQ(refused("main"), grpc::OK);
}

TEST_F(KedaScalerTest, StreamsAreBounded) {
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<keda::IsActiveResponse>>> readers;
  keda::IsActiveResponse answer;
  for (int i = 0; i < 2; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stub_->StreamIsActive(contexts.back().get(), of("main")));
    ASSERT_TRUE(readers.back()->Read(&answer));
  }
  grpc::ClientContext third;
  const auto refused_one = stub_->StreamIsActive(&third, of("main"));
  EXPECT_FALSE(refused_one->Read(&answer));
  EXPECT_EQ(refused_one->Finish().error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(refused("main"), grpc::OK) << "calls that are no streams go on";
  for (const auto& one : contexts) one->TryCancel();
}

TEST_F(KedaScalerTest, APortThatIsTakenIsSaid) {
  const auto second = KedaScaler::open({.port = scaler_->port()},
                                       [] { return std::vector<FleetScaler::PoolState>(); });
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kAddressInUse);
}

}  // namespace
}  // namespace pelton::launch
