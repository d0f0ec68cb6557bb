// What runs of hostile templates really hold, counted at the allocator: never more than their
// limit. The limit counts ahead of what is made; this file counts what was.
#include <atomic>
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>
#include <malloc.h>

#include "base/json.h"
#include "jinja/template.h"

namespace {

std::atomic<int64_t> held{0};
std::atomic<int64_t> most_held{0};

void* counted(size_t size) {
  void* const block = std::malloc(size > 0 ? size : 1);
  if (block == nullptr) std::abort();
  const int64_t now = held += static_cast<int64_t>(malloc_usable_size(block));
  int64_t most = most_held;
  while (now > most && !most_held.compare_exchange_weak(most, now)) {
  }
  return block;
}

void freed(void* block) {
  if (block == nullptr) return;
  held -= static_cast<int64_t>(malloc_usable_size(block));
  std::free(block);
}

}  // namespace

void* operator new(size_t size) {
  return counted(size);
}
void* operator new[](size_t size) {
  return counted(size);
}
// Without these a sanitizer's own would give what the functions below free.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return counted(size);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return counted(size);
}
void operator delete(void* block) noexcept {
  freed(block);
}
void operator delete[](void* block) noexcept {
  freed(block);
}
void operator delete(void* block, size_t) noexcept {
  freed(block);
}
void operator delete[](void* block, size_t) noexcept {
  freed(block);
}

namespace pelton::jinja {
namespace {

constexpr size_t kBytes = size_t{16} << 20;

// Each grows one kind of value until its run is stopped.
constexpr std::string_view kHostile[] = {
    // Strings that double, their copies, and their pieces.
    "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{{ ('ab' * 4000000) | upper | length }}{{ 'ab' * 3000000 }}",
    "{{ ('ab' * 1000000) | list | length }}",
    "{{ ('a b ' * 1000000).split() | length }}",
    "{{ ('a,' * 1000000).split(',') | length }}",
    "{{ ('a,' * 1000000).rsplit(',') | length }}",
    "{{ ('a\n' * 1000000).splitlines() | length }}",
    "{{ ('\x01' * 1000000) | tojson | length }}{{ [('\x01' * 1000000)] | string | length }}",
    "{{ '%s' % ('a' * 8000000) }}{{ '{}'.format('a' * 8000000) }}",
    "{{ ('a' * 1000000) | replace('', 'b' * 10) }}",
    "{{ ('a\n' * 1000000) | indent('x' * 20) }}",
    // What is input is known of each byte: ranges beside the bytes.
    "{% set n = namespace(x=x) %}{% for i in range(99) %}{% set n.x = n.x ~ '.' ~ n.x %}"
    "{% endfor %}",
    "{{ (['.'] * 100000) | join(x) | length }}{{ (x ~ '.') * 1000000 }}",
    "{% for i in range(100000) %}{{ x }}.{% endfor %}",
    // Many small things.
    "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set n = namespace(x=[]) %}{% for i in range(99999) %}{% set n.x = n.x + [i.y] %}"
    "{% endfor %}",
    "{{ range(100000) | map('string') | map('upper') | map('list') | list | length }}",
    "{{ range(100000) | batch(1) | list | length }}{{ range(9) | slice(9000000) | length }}",
    "{{ range(100000) | groupby('real') | list | length }}",
    "{{ (range(100000) | list | sort | unique | list) | length }}",
    "{% set n = namespace(x=[]) %}{% for i in range(99999) %}{% set n.x = [loop, n.x.copy] %}"
    "{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{{ ('[1,' * 1 ~ '1,' * 1000000 ~ '1]') | from_json | length }}",
    "{% macro m(a) %}{{ a ~ a }}{% endmacro %}{{ m(m(m(m(m(m(m('ab' * 300000))))))) }}",
    "{% set n = namespace() %}{% for i in range(100000) %}{% set n.x = namespace(y=n) %}"
    "{% endfor %}",
};

TEST(JinjaMemory, NoRunHoldsMoreThanItsLimit) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's allocator rounds otherwise";
#endif
  const Template::Options options{.limits = {.bytes = kBytes}, .unix_seconds = 0};
  Dict context;
  context.members.emplace_back(Value::own("x"), Value::input("in"));
  for (const std::string_view source : kHostile) {
    const Template made = Template::compile(source).value();
    const int64_t before = held;
    most_held = before;
    {
      const Result<Text> text = made.render(context, options);
      if (!text.ok()) {
        EXPECT_NE(text.error().message.find("more than"), std::string::npos)
            << source << "\n"
            << text.error().message;
      }
    }
    EXPECT_LE(most_held - before, static_cast<int64_t>(kBytes)) << source;
    EXPECT_LE(held - before, 4096) << source << ": not given back";
  }
}

}  // namespace
}  // namespace pelton::jinja
