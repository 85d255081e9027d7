# frozen_string_literal: true

require_relative "small_scheduler"

# Runs examples under a `Fiber::Scheduler`: async's if it is installed, else the small one here.
module Evented
  # The schedulers of this machine.
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

# A block in a fiber, and its result: its value, or its exception, unchanged.
class Task
  # @yieldreturn what {#value} returns
  def initialize
    @done = Thread::Queue.new
    Fiber.schedule do
      @value = yield
    rescue StandardError, ScriptError, SystemStackError => error
      # It belongs to the waiting fiber. Raised here, it would end the scheduler and all other
      # fibers.
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
