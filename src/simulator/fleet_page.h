// What one or several fleets did, as a page that opens offline (report/html_page.h): a table, then
// load, replicas, late requests and money over one time axis, then the steps with their reasons.
// Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "report/plot.h"
#include "simulator/fleet_figures.h"

namespace pelton::simulator {

struct FleetPage {
  std::string title;
  std::vector<std::string> notes;   // paragraphs above
  std::string first = "fleet";      // heads the column of names
  std::vector<report::Plot> plots;  // beside those over time
};
std::string fleet_page(const FleetPage& page, std::span<const PlayedFleet> fleets);

// Curves of a sweep whose values are numbers: the 99th percentile of the time to the first token,
// requests that were late, and replica-hours.
std::vector<report::Plot> sweep_plots(const std::string& what, std::span<const double> values,
                                      std::span<const PlayedFleet> fleets);

}  // namespace pelton::simulator
