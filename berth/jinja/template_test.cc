// jinja/template_test.cc — the sandbox's limits and messages, and Python's corners that the goldens do not touch.
#include "berth/jinja/template.h"

#include <gtest/gtest.h>

#include <ctime>

#include "berth/base/json.h"

namespace berth::jinja {
namespace {

Result<std::string> rendered(std::string_view source, const Dict& variables = {}) {
  RenderOptions options;
  options.now = DateTime{2026, 1, 15, 12, 34, 56};
  TRY(const Template t, Template::parse(source));
  return t.render(variables, options);
}

std::string text_of(std::string_view source) {
  const auto r = rendered(source);
  return r ? *r : "error: " + r.error().message;
}

// Templates that would run for ever, fill memory or overflow the stack.
TEST(TemplateLimits, HostileTemplatesEndSoonWithAnError) {
  const std::string deep_parentheses = "{{ " + std::string(100000, '(') + "1" + std::string(100000, ')') + " }}";
  const std::string deep_lists = "{{ " + std::string(100000, '[') + std::string(100000, ']') + " }}";
  std::string deep_ifs, long_sum = "{{ 1", long_chain = "{{ x", nots = "{{ ";
  for (int i = 0; i < 5000; ++i) deep_ifs += "{% if true %}";
  for (int i = 0; i < 100000; ++i) long_sum += "+1";
  for (int i = 0; i < 100000; ++i) long_chain += ".a";
  for (int i = 0; i < 100000; ++i) nots += "not ";
  std::string elifs = "{% if false %}";
  for (int i = 0; i < 5000; ++i) elifs += "{% elif false %}";
  const std::string sources[] = {
      "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}{% endfor %}{% endfor %}{% "
      "endfor %}",
      "{{ 'a' * 10000000000 }}",
      "{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(90) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
      "{% set ns = namespace(d={}) %}{% for i in range(90) %}{% set ns.d = {'a': ns.d, 'b': ns.d} %}{% endfor %}{{ "
      "ns.d | tojson }}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(n) %}{% for i in range(9) %}{{ m(n) }}{% endfor %}{% endmacro %}{{ m(1) }}",
      "{% for i in range(100000) %}{{ 'x' * 100000 }}{% endfor %}",
      "{{ 'x'.center(1000000000000) }}",
      "{{ 'x' | indent(100000000) }}",
      "{{ '%1000000000d' % 1 }}",
      "{{ '{:>1000000000}'.format(1) }}",
      "{{ 'a,' * 1000000 | length }}{{ ('a,' * 10000000).split(',') | length }}",
      "{{ 9 ** 9 ** 9 ** 9 }}",
      "{{ range(10 ** 18) }}",
      "{% for x in loop %}{% endfor %}{{ loop }}{{ undefined_thing.x }}",
      "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{{ [1] | map('map') | list }}{{ x.y.z }}",
      deep_parentheses,
      deep_lists,
      deep_ifs,
      long_sum + " }}",
      long_chain + " }}",
      nots + "1 }}",
      elifs,
  };
  for (const std::string& source : sources) {
    const std::clock_t start = std::clock();  // of the processor: a busy machine changes nothing
    const auto r = rendered(source);
    const double s = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_FALSE(r) << source.substr(0, 100);
    if (!r) {
      EXPECT_LT(r.error().message.size(), 1000u) << source.substr(0, 100);
    }
    EXPECT_LT(s, 15.0) << source.substr(0, 100);
  }
}

TEST(TemplateSandbox, NothingOutsideTheValuesCanBeReached) {
  for (const char* source :
       {"{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ x.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}", "{{ self.__init__() }}", "{{ [].append(1) }}",
        "{{ {}.update({}) }}", "{% include '/etc/passwd' %}", "{% import 'os' as os %}", "{% extends 'x' %}",
        "{{ lipsum.__globals__['os'] }}", "{{ '{0.__class__.__mro__}'.format('x') }}", "{{ open('/etc/passwd') }}",
        "{{ [] | attr('__class__') | attr('__base__') }}{{ x() }}"}) {
    EXPECT_FALSE(rendered(source)) << source;
  }
}

TEST(TemplateErrors, SayTheLineAndRaisedOnesAreWordForWord) {
  const auto syntax = rendered("a\nb\n{% if %}");
  ASSERT_FALSE(syntax);
  EXPECT_EQ(syntax.error().code, ErrorCode::kCorruptData);
  EXPECT_NE(syntax.error().message.find("line 3"), std::string::npos) << syntax.error().message;
  const auto run = rendered("a\n\n{{ 1 + 'a' }}");
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(run.error().message.find("line 3"), std::string::npos) << run.error().message;
  const auto raised = rendered("\n{{ raise_exception('Only\\nuser') }}");
  ASSERT_FALSE(raised);
  EXPECT_EQ(raised.error().message, "Only\nuser");
  ASSERT_EQ(raised.error().hints.size(), 1u);
  EXPECT_NE(raised.error().hints[0].find("line 2"), std::string::npos);
}

TEST(Template, ScopesAreJinjas) {
  EXPECT_EQ(text_of("{% set a = 1 %}{% for i in [1,2] %}{{ a }}{% set a = i + 1 %}{{ a }}{% endfor %}{{ a }}"),
            "12131");
  EXPECT_EQ(text_of("{% macro m() %}{% set a = 2 %}{% endmacro %}{% set a = 1 %}{{ m() }}{{ a }}"), "1");
  EXPECT_EQ(text_of("{% set a %}{% set b = 1 %}x{% endset %}{{ a }}{{ b }}|"), "x|");
  EXPECT_EQ(text_of("{% with a = 1 %}{% with b = a + 1 %}{{ b }}{% endwith %}{% endwith %}{{ b }}|"), "2|");
}

TEST(Template, RecursiveLoopsAndGeneratorsOnce) {
  EXPECT_EQ(text_of("{% for i in [[1,[2]],3] recursive %}{% if i is iterable %}({{ loop(i) }}){% else %}{{ i }}{{ "
                    "loop.depth }}{% endif %}{% endfor %}"),
            "(12(23))31");
  EXPECT_EQ(text_of("{% set g = [1,2] | map('string') %}{{ g | list }}{{ g | list }}"), "['1', '2'][]");
}

TEST(Template, FloatsPrintAsInPython) {
  EXPECT_EQ(text_of("{{ 0.0001 }} {{ 0.00001 }} {{ 1e22 }} {{ 123456789012345680.0 }} {{ 1.0e5 }} {{ -1.5e-7 }}"),
            "0.0001 1e-05 1e+22 1.2345678901234568e+17 100000.0 -1.5e-07");
}

TEST(DateTime, ReadsAndRefuses) {
  EXPECT_EQ(parse_date_time("2026-01-15T12:34:56").value().second, 56);
  EXPECT_EQ(parse_date_time("2024-02-29").value().day, 29);
  for (const char* bad :
       {"", "2026", "2026-13-01", "2025-02-29", "2026-01-15T25:00:00", "2026-01-15X12:00", "2026/01/15"})
    EXPECT_FALSE(parse_date_time(bad)) << bad;
}

TEST(Strftime, WeeksAndHours) {
  EXPECT_EQ(text_of("{{ strftime_now('%a %b %e %I:%M %p|%U %W %V %G %u %w|%F %T|%-d/%-m|%%|%Q') }}"),
            "Thu Jan 15 12:34 PM|02 02 03 2026 4 4|2026-01-15 12:34:56|15/1|%|%Q");
}

}  // namespace
}  // namespace berth::jinja
