// What a gateway is made with, of its configuration and of the files that this names: keys,
// certificates, secrets, tokenizers. Pure but for reading them.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "access/operator_keys.h"
#include "base/result.h"
#include "cluster/etcd_client.h"
#include "gateway/gateway.h"
#include "gateway/key_scopes.h"

namespace pelton::apps {

// With what its files say: keys, and the key of the fleet. Errors: kBadConfig.
struct GatewayOptions {
  gateway::Gateway::Options gateway;
  access::OperatorKeys operators;  // of its file of keys, for the admin listener
};
// `known`: tokenizers that have been read, by their files; those that are read now are added.
using TextsByFile = std::map<std::string, std::shared_ptr<const gateway::ModelText>>;
Result<GatewayOptions> gateway_options(gateway::GatewayConfig config, TextsByFile& known);

// Of etcd, for gateways and workers alike. Errors: kBadConfig.
Result<cluster::EtcdClient::Options> etcd_options(const gateway::EtcdConfig& etcd);

}  // namespace pelton::apps
