// What an answer of a place means: where a redirect may lead, what a refusal says to the user, a
// small document fetched whole. Pure functions and one that waits.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "hub/retry.h"
#include "hub/transfers.h"
#include "weights/manifest.h"
#include "weights/place.h"

namespace pelton::weights {

bool is_redirect(int status);

// Where it leads, asked as far as that may be: another host gets neither key nor signature, and
// what was https stays so. Errors: kUnavailable; a signed request is led nowhere.
Result<hub::TransferRequest> redirected(const Place& place, const hub::TransferRequest& request,
                                        const hub::ResponseHead& head);

// A status that is neither what was asked for nor worth another try, in words. kNotFound for 404.
Error refusal(const Place& place, const hub::ResponseHead& head);

// Of the origin. `go_on` is asked between waits. Errors: kNotFound, kUnavailable, kCancelled,
// kBadCheckpoint.
Result<Manifest> fetch_manifest(const Place& origin, const PlaceAccess& access,
                                const hub::RetryOptions& retry, const base::Clock& clock,
                                base::FunctionRef<bool()> go_on);

}  // namespace pelton::weights
