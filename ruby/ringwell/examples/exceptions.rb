# frozen_string_literal: true

# Fibers and threads return values and raise exceptions unchanged. This also applies to values that
# are easily mistaken for something else. No exception ends the process.
require_relative "support/evented"

RETURNED = [42, nil, false, [], [1], [[1, 2]], {a: 1},
  RuntimeError.new("returned, not raised")].freeze

def endless(depth) = endless(depth + 1)

RAISED = {
  "an error" => -> { raise ArgumentError, "as it was" },
  "an exception without a handler" => -> { raise NotImplementedError, "as it was" },
  "an endless recursion" => -> { endless(0) },
  "an error with a cause" => lambda do
    raise "cause"
  rescue
    raise IOError, "as it was"
  end
}.freeze

def tell(what, same) = puts("#{same ? "same" : "CHANGED"}: #{what}")

Evented.run do
  RETURNED.each { |value| tell(value.inspect, Task.new { value }.value.equal?(value)) }

  RAISED.each do |name, block|
    raised = nil
    task = Task.new do
      block.call
    rescue Exception => raised # rubocop:disable Lint/RescueException -- to compare it
      raise
    end
    begin
      task.value
    rescue StandardError, ScriptError, SystemStackError => error
      tell("#{name}: #{error.class}", error.equal?(raised))
    end
  end

  # Work in a thread, outside of the scheduler's loop. The fiber waits for it as for anything else.
  tell("the value of a thread", Thread.new { 42 }.value == 42)
  failing = Thread.new { raise IOError, "in a thread" }
  failing.report_on_exception = false
  begin
    failing.value
  rescue IOError => error
    tell("the exception of a thread: #{error.message}", true)
  end
end

puts "still alive"
