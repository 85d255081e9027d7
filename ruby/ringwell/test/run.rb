# frozen_string_literal: true

# The whole suite: `ruby test/run.rb [minitest's options]`. Without options two processes share it,
# because most of its time is waiting and the servers of tests have the other core.
ENV["RINGWELL_COVERAGE"] = "yes" if ARGV.empty?
$LOAD_PATH.unshift File.expand_path("../lib", __dir__), __dir__

require "tempfile"
require "helper"
Dir["#{__dir__}/*_test.rb"].sort.each { |file| require file }
exit Minitest.run(ARGV) if ARGV.any?

# About half of the work, and Rails, which others should not find loaded.
SECOND = %w[GoldenTest BenchTest RailsTest NewAppTest PackageTest EngineServersTest FiddleEngineTest].freeze

# Runs the classes of tests for which the block is true.
#
# @return [Boolean] whether they passed
def run_those(&)
  Minitest::Runnable.runnables.select!(&)
  Minitest.run([])
end

covered = Tempfile.new("coverage", binmode: true)
second = IO.popen("-")
unless second
  passed = run_those { |tests| SECOND.include?(tests.name) }
  covered.write(Marshal.dump(Covered.result))
  covered.flush
  exit passed
end

ExamplesTest.start_all
passed = run_those { |tests| !SECOND.include?(tests.name) }
puts second.read
second.close
passed &&= $?.success?
enough = Covered.report([Covered.result, Marshal.load(covered.tap(&:rewind).read)])
exit(passed && enough)
