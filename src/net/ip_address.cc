#include "net/ip_address.h"

#include <string>

#include <boost/asio/ip/address.hpp>

namespace pelton::net {

bool is_ip_address(std::string_view text) {
  boost::system::error_code error;
  boost::asio::ip::make_address(std::string(text), error);
  return !error;
}

}  // namespace pelton::net
