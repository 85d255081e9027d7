# frozen_string_literal: true

# Runs the whole suite: `ruby test/run.rb [minitest's options]`. Without options, four processes
# share it, because the tests often wait.
ENV["RINGWELL_COVERAGE"] = "yes" if ARGV.empty?
$LOAD_PATH.unshift File.expand_path("../lib", __dir__), __dir__

require "tempfile"
require "helper"
Dir["#{__dir__}/*_test.rb"].sort.each { |file| require file }
exit Minitest.run(ARGV) if ARGV.any?

# This process loads no compiled code of the gem. Rails under fibers once crashed Ruby 3.1. If that
# happens again, neither the engine nor the shim is the cause.
WITHOUT_COMPILED_CODE = %w[NewAppTest RailsTest].freeze
# The other classes come from a queue. These come first, because they take longest.
LONGEST = %w[PackageTest BenchTest FiddleEngineTest EngineTest GoldenTest EngineServersTest].freeze
# The number of processes that take classes from the queue, in addition to the first one.
WORKERS = 2

# Test classes that processes share: each takes the next one until none is left.
class SharedQueue
  # An entry's size in bytes. Each read takes one whole entry from the pipe.
  ENTRY = 64

  def initialize(names)
    @reader, writer = IO.pipe
    names.each { |name| writer.write(name.ljust(ENTRY)) }
    writer.close
  end

  def each
    loop { yield @reader.sysread(ENTRY).strip }
  rescue EOFError
    # All classes have been taken.
  end
end

# Runs these classes one after another.
#
# @param names [#each]
# @return [Boolean] whether they passed
def run_those(names)
  Minitest.define_singleton_method(:__run) do |reporter, options|
    names.each { |name| Object.const_get(name).run(reporter, options) }
  end
  Minitest.run([])
end

# Starts a process that runs these classes.
#
# @return [Array(IO, Tempfile)] its output, and its coverage, which is written when it ends
def start(names)
  covered = Tempfile.new("coverage", binmode: true)
  output = IO.popen("-")
  return [output, covered] if output

  passed = run_those(names)
  covered.write(Marshal.dump(Covered.result))
  covered.flush
  exit passed
end

all = Minitest::Runnable.runnables.select { |tests| tests.methods_matching(/\Atest_/).any? }.map(&:name)
rest = all - WITHOUT_COMPILED_CODE - %w[ExamplesTest]
queue = SharedQueue.new((LONGEST & rest) + (rest - LONGEST).shuffle)
others = [WITHOUT_COMPILED_CODE, *[queue] * WORKERS].map { |names| start(names) }
# The examples wait most of the time, so they run beside other tests.
ExamplesTest.start_all
passed = run_those(queue.enum_for(:each) + %w[ExamplesTest])
covered = [Covered.result]
others.each do |output, file|
  puts output.read
  output.close
  passed &&= $?.success?
  covered << Marshal.load(file.tap(&:rewind).read)
end
exit(Covered.report(covered) && passed)
