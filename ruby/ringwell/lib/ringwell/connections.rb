# frozen_string_literal: true

module Ringwell
  # One client's connections. Limits their number, and keeps the idle ones.
  #
  # The state belongs to the instance, never to a thread or fiber, because each thread or fiber that
  # ended would leave a socket open. A call waits here for its turn, at most until its deadline.
  # Invariant: connections in use and idle connections together never exceed `size`.
  class Connections
    # @param size [Integer] the maximum number of connections at a time
    # @param idle [Numeric] seconds after which an unused connection is not used again. Must be less
    #   than the servers' own limit, because a request is lost if the server closes the connection
    #   while the request is being sent
    def initialize(size:, idle:)
      @size = size
      @idle_limit = idle
      @mutex = Mutex.new
      @turn = ConditionVariable.new
      begin_anew
    end

    # Occupies one of the slots while the block runs.
    #
    # @raise [DeadlineExceeded] if all slots are occupied until the deadline
    def place(deadline)
      generation = take_place(deadline)
      begin
        yield
      ensure
        give_place_back(generation)
      end
    end

    # Returns the idle connection that was used last, if any. The caller has a slot.
    #
    # @return [Connection, nil]
    def idle(endpoint)
      while (connection = pop(endpoint))
        young = connection.used_at + @idle_limit > Deadline.now
        return connection if young && !connection.dead?

        connection.close
      end
    end

    # Keeps a connection for another call.
    def keep(connection)
      kept = @mutex.synchronize { @pid == Process.pid && !@closed && @idle << connection }
      connection.close unless kept
    end

    # Closes an idle connection if a new one would exceed the limit, which also counts idle
    # connections to other endpoints.
    def make_room
      spare = @mutex.synchronize { @idle.shift if @taken + @idle.size > @size }
      spare&.close
    end

    # Closes idle connections now, and the others when their calls end. Calls may continue, each
    # with its own connection.
    def close
      idle = @mutex.synchronize do
        @closed = true
        @idle.slice!(0..)
      end
      idle.each(&:close)
    end

    # The numbers of idle connections and of those in use.
    def to_h = @mutex.synchronize { {idle: @idle.size, taken: @taken} }

    private

    def begin_anew
      @pid = Process.pid
      @taken = 0
      @idle = []
      @closed = false
    end

    def take_place(deadline)
      @mutex.synchronize do
        leave_to_parent unless @pid == Process.pid
        until @taken < @size
          @turn.wait(@mutex, deadline.left!("one of #{@size} connections"))
        end
        @taken += 1
        @pid
      end
    end

    # After a fork, the sockets belong to the parent: two processes on one connection would read
    # each other's answers. The parent's sockets stay open when our copies are closed.
    def leave_to_parent
      @idle.each(&:close)
      begin_anew
    end

    # @param pid [Integer] the process that took the slot; a call in progress in the parent has no
    #   slot in the child
    def give_place_back(pid)
      @mutex.synchronize do
        @taken -= 1 if pid == @pid
        @turn.signal
      end
    end

    def pop(endpoint)
      @mutex.synchronize do
        index = @idle.rindex { |connection| connection.endpoint.equal?(endpoint) }
        @idle.delete_at(index) if index
      end
    end
  end
end
