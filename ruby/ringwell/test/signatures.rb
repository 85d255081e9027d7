# frozen_string_literal: true

# Checks sig/ in three ways: that the signatures are consistent, that the code has every method that
# they list, and that arguments and results match them while the contract and the values' tests run.
# Not part of the suite, because it takes several seconds.
require "rbs"
require "rbs/cli"

SIG = File.expand_path("../sig", __dir__)

ENV["RBS_TEST_TARGET"] = "Ringwell::*"
ENV["RBS_TEST_OPT"] = "-I #{SIG} -r socket"
ENV["RBS_TEST_LOGLEVEL"] = "error"

RBS::CLI.new(stdout: File.open(File::NULL, "w"), stderr: $stderr)
  .run(["-I", SIG, "-r", "socket", "validate", "--silent"])

# Must be loaded before the code, because it adds its checks at the end of each class.
require "rbs/test/setup"
$LOAD_PATH.unshift File.expand_path("../lib", __dir__), __dir__
require "helper"
# Files that are loaded only on demand.
require "ringwell/engine/by_fiddle"
require "ringwell/calls"
require "ringwell/pool_list"
require "ringwell/webhooks"

# Methods that are declared but missing, or public but not declared.
class SignaturesTest < RingwellTest
  it "every class and method of the signatures exists, and every public one has a signature" do
    declared.each do |type, (of_class, of_instances)|
      assert_equal [], of_class - type.methods, "#{type}."
      assert_equal [], of_instances - type.instance_methods - type.private_instance_methods,
        "#{type}#"
      ours = type.public_instance_methods(false) - %i[== eql? hash inspect to_s]
      ours.reject! { |name| name.match?(/__with(out)?__/) }
      assert_equal [], ours - of_instances - inherited(type), "#{type}# has no signature"
    end
  end

  private

  def declared
    loader = RBS::EnvironmentLoader.new(core_root: nil)
    loader.add(path: Pathname(SIG))
    environment = RBS::Environment.from_loader(loader)
    environment.class_decls.to_h do |name, entry|
      methods = entry.decls.flat_map { |decl| decl.decl.members }
        .grep_v(RBS::AST::Members::Include).grep_v(RBS::AST::Declarations::Base)
      of_class, of_instances = methods.partition { |one|
        one.respond_to?(:kind) && one.kind == :singleton
      }
      [Object.const_get(name.to_s), [of_class.map(&:name), of_instances.map(&:name)]]
    end
  end

  def inherited(type) = type.ancestors.drop(1).flat_map { |one| one.instance_methods(false) }
end

require "value_test"
require "contract_test"
require "fake_test"
require "config_test"
require "rack_test"
require "response_test"
require "pool_list_test"
require "calls_test"
require "webhooks_test"
require "overflow_test"
# Excludes tests that pass wrong arguments on purpose, because the signatures would reject them, and
# tests that need a complete server.
{
  ValueTest => /a_request_is_refused|a_refused_row|unknown_keyword/, ConfigTest => /settings_are_refused/,
  RackTest => /Puma|Thin/, CallsTest => /an_outcome_is_refused/, WebhooksTest => /change_of_secrets|is_a_block/
}.each do |tests, left_out|
  tests.public_instance_methods(false).grep(left_out).each { |name| tests.remove_method(name) }
end
exit Minitest.run(ARGV)
