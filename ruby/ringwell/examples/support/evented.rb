# frozen_string_literal: true

require_relative "small_scheduler"

# Runs examples under a `Fiber::Scheduler`: async's if it is installed, otherwise the small one.
module Evented
  # The names of the available schedulers.
  def self.schedulers
    require "async"
    %w[async small]
  rescue LoadError
    %w[small]
  end

  # Runs the block in its own fiber; returns its value, or raises its exception.
  def self.run(scheduler = ENV.fetch("SCHEDULER", schedulers.first))
    return Thread.new { Async { yield }.wait }.value if scheduler == "async"

    task = nil
    Thread.new do
      Fiber.set_scheduler(SmallScheduler.new)
      task = Task.new { yield }
    end.join
    task.value
  end
end

# Runs a block in a fiber, and returns its value or raises its exception, unchanged.
class Task
  # @yieldreturn the result of {#value}
  def initialize
    @done = Thread::Queue.new
    Fiber.schedule do
      @value = yield
    rescue StandardError, ScriptError, SystemStackError => error
      # The waiting fiber raises the error. If it were raised here, it would end the scheduler and
      # all other fibers.
      @error = error
    ensure
      @done.close
    end
  end

  # Waits for the block.
  def value
    @done.pop
    raise @error if @error

    @value
  end
end
