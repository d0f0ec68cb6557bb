// What machines are to be had, what a replica of each model takes and gives, and what is asked for:
// the input of an allocation. Values. Rates are requests per second, prices one currency per hour.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::capacity {

constexpr double kMonthSeconds = 30 * 86'400.0;

enum class Kind { kReserved, kOnDemand, kSpot };
std::string_view kind_name(Kind kind);

struct Entry {  // [[capacity]]: machines of one kind at one place
  std::string name;
  std::string provider;
  std::string region;
  std::string zone;
  std::string machine;  // what variants name
  int gpus = 0;         // of one machine
  Kind kind = Kind::kOnDemand;
  double price = 0;  // of one machine; of a reserved one it is paid whether it is used or not
  int quota = 1;     // machines
  double lead_p50_s = 60;
  double lead_p90_s = 120;
  double stock = 1;          // the share of orders that are fulfilled
  double reclaim_per_h = 0;  // of one spot machine
  double notice_s = 0;
  double egress_per_gb = 0;
  double min_billing_s = 3600;
  std::vector<std::string> residency;  // tags, as "eu"
  bool away = false;                   // counts as if it were not there

  // The share of the time that an ordered machine is there: between a reclaim and its replacement
  // it is not. An order that fails is repeated.
  double presence() const;
};

struct Variant {  // a way to run a model
  std::string name;
  std::string model;
  std::string machine;
  int machines = 1;  // of one replica
  double rate = 0;   // that one replica serves within the objective
};

struct Demand {
  std::string model;
  std::vector<std::string> residency;  // an entry must have one of these tags; empty: any entry
  double rate = 0;
  double answer_kb = 0;  // that leave the provider with each request

  bool permits(const Entry& entry) const;
};

struct Running {  // replicas that are there
  std::string entry;
  std::string variant;
  int replicas = 0;
};

// What fails as one. kSpot: all spot machines of a provider's region, as they are taken back
// together.
enum class Domain { kZone, kRegion, kProvider, kSpot };
constexpr std::array<Domain, 4> kDomains = {Domain::kZone, Domain::kRegion, Domain::kProvider,
                                            Domain::kSpot};
std::string_view domain_name(Domain domain);
// Empty: the entry belongs to no domain of this kind.
std::string domain_of(const Entry& entry, Domain domain);
// "zone a/eu/1", as domains are named; "": none of this kind.
std::string domain_title(const Entry& entry, Domain domain);
bool is_in(const Entry& entry, const std::string& title);

// Incidents that no spare helps against: a bad release, a configuration, a certificate.
struct CommonMode {  // [[common_mode]]
  std::string cause;
  double per_month = 0;
  double share = 1;      // of the requests that it takes
  double lasts_s = 300;  // until it is taken back
};

// How often what fails, and how soon that is noticed.
struct FaultRates {  // [availability]
  double objective = 0.9999;
  double detect_s = 3;         // until a gateway sends nothing there any more
  double shift_s = 2;          // until the others have its requests
  double start_s = 60;         // of a replica, from a machine that is there to ready
  double sheddable_share = 0;  // of the demand, that may be refused meanwhile
  // Mean days between failures of one; 0: never.
  double replica_mtbf_days = 30;
  double machine_mtbf_days = 180;
  double zone_mtbf_days = 365;
  double region_mtbf_days = 730;
  double provider_mtbf_days = 0;
  double spot_mtbf_days = 30;  // all spot machines of a provider's region at once
  double outage_s = 3600;      // until a lost zone, region or provider is back
  std::vector<CommonMode> common_modes;
};

struct FleetNeeds {
  std::string currency = "USD";
  double survive_share = 0.6;  // of the demand, that is served without any one of the domains
  std::vector<Domain> survive = {Domain::kZone};
  double switch_cost = 0;  // of starting one replica while others run
  std::vector<Entry> entries;
  std::vector<Variant> variants;
  std::vector<Demand> demands;
  std::vector<Running> running;
  FaultRates faults;
};

}  // namespace pelton::capacity
