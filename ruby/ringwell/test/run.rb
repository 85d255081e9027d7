# frozen_string_literal: true

# The whole suite: `ruby test/run.rb [minitest's options]`. Without options four processes share it,
# because much of its time is waiting.
ENV["RINGWELL_COVERAGE"] = "yes" if ARGV.empty?
$LOAD_PATH.unshift File.expand_path("../lib", __dir__), __dir__

require "tempfile"
require "helper"
Dir["#{__dir__}/*_test.rb"].sort.each { |file| require file }
exit Minitest.run(ARGV) if ARGV.any?

# What takes long, each group in a process of its own; the last process has all the rest. In the first nothing
# of the gem is compiled code: Rails under fibers crashed Ruby 3.1 once, and if it does so again, it was neither
# the engine nor the shim.
GROUPS = [%w[RailsTest NewAppTest], %w[PackageTest BenchTest], %w[GoldenTest EngineServersTest FiddleEngineTest]].freeze

# Runs the classes of tests for which the block is true.
#
# @return [Boolean] whether they passed
def run_those(&)
  Minitest::Runnable.runnables.select!(&)
  Minitest.run([])
end

# A process that runs these classes.
#
# @return [Array(IO, Tempfile)] what it prints, and what it has covered once it has ended
def start(classes)
  covered = Tempfile.new("coverage", binmode: true)
  output = IO.popen("-")
  return [output, covered] if output

  passed = run_those { |tests| classes.include?(tests.name) }
  covered.write(Marshal.dump(Covered.result))
  covered.flush
  exit passed
end

others = GROUPS.map { |classes| start(classes) }
ExamplesTest.start_all
passed = run_those { |tests| GROUPS.none? { |classes| classes.include?(tests.name) } }
covered = [Covered.result]
others.each do |output, file|
  puts output.read
  output.close
  passed &&= $?.success?
  covered << Marshal.load(file.tap(&:rewind).read)
end
exit(Covered.report(covered) && passed)
