# frozen_string_literal: true

require_relative "small_scheduler"

# Runs examples under a `Fiber::Scheduler`: async's if it is installed, else the small one here.
module Evented
  # Which schedulers this machine has.
  def self.schedulers
    require "async"
    %w[async small]
  rescue LoadError
    %w[small]
  end

  # Runs the block in a fiber of its own and returns what it returns, or raises what it raises.
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

# A block in a fiber, and what became of it: its value, or its exception, unchanged.
class Task
  # @yieldreturn what {#value} returns
  def initialize
    @done = Thread::Queue.new
    Fiber.schedule do
      @value = yield
    rescue StandardError, ScriptError, SystemStackError => error
      # It belongs to the waiting fiber. Raised from here, it would end the scheduler and all others.
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
