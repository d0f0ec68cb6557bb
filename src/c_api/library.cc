// What the library is, and all that it exports.
#include "c_api/pelton.h"

const char* pelton_version(void) {
  return PELTON_VERSION;
}

int pelton_abi_version(void) {
  return PELTON_ABI_VERSION;
}
