# frozen_string_literal: true

# The whole suite: `ruby test/run.rb [minitest's options]`. Without options four processes share it,
# because it waits much of its time.
ENV["RINGWELL_COVERAGE"] = "yes" if ARGV.empty?
$LOAD_PATH.unshift File.expand_path("../lib", __dir__), __dir__

require "tempfile"
require "helper"
Dir["#{__dir__}/*_test.rb"].sort.each { |file| require file }
exit Minitest.run(ARGV) if ARGV.any?

# No compiled code of the gem is loaded in this process: Rails under fibers crashed Ruby 3.1 once,
# and if that happens again, neither the engine nor the shim is the cause.
WITHOUT_COMPILED_CODE = %w[NewAppTest RailsTest].freeze
# The others come from a queue, these first, because they take longest.
LONGEST = %w[PackageTest BenchTest FiddleEngineTest EngineTest GoldenTest EngineServersTest].freeze
# Takes classes from the queue, in parallel with the first process.
WORKERS = 2

# Test classes that processes share: each takes the next one until none is left.
class SharedQueue
  # Bytes of an entry. A pipe delivers all of them to one reader, or none.
  ENTRY = 64

  def initialize(names)
    @reader, writer = IO.pipe
    names.each { |name| writer.write(name.ljust(ENTRY)) }
    writer.close
  end

  def each
    loop { yield @reader.sysread(ENTRY).strip }
  rescue EOFError
    # All are taken.
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

# A process that runs these classes.
#
# @return [Array(IO, Tempfile)] its output, and its coverage after it has ended
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
# The examples wait most of the time: they run beside other tests.
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
