# frozen_string_literal: true

module Ringwell
  # The connections of one client: how many there may be, and which are idle.
  #
  # The state is in the instance, never in a thread or fiber: those come and go, and a socket for
  # each of them would be left behind. A call waits here for its turn, at most until its deadline.
  # Invariant: connections in use and idle together are never more than `size`.
  class Connections
    # @param size [Integer] the most connections at a time
    # @param idle [Numeric] seconds after which an unused one is not used again: less than the
    #   servers' own limit, because a request that crosses their goodbye is lost
    def initialize(size:, idle:)
      @size = size
      @idle_limit = idle
      @mutex = Mutex.new
      @turn = ConditionVariable.new
      begin_anew
    end

    # Takes one of the places, for as long as the block runs.
    #
    # @raise [DeadlineExceeded] if all are taken until then
    def place(deadline)
      generation = take_place(deadline)
      begin
        yield
      ensure
        give_place_back(generation)
      end
    end

    # An idle connection that is worth trying, the one used last. The caller has a place.
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

    # Makes room for a new connection: idle ones of other endpoints count too.
    def make_room
      spare = @mutex.synchronize { @idle.shift if @taken + @idle.size > @size }
      spare&.close
    end

    # Closes idle connections now, and the others when their calls end. Calls may go on, each with
    # a connection of its own.
    def close
      idle = @mutex.synchronize do
        @closed = true
        @idle.slice!(0..)
      end
      idle.each(&:close)
    end

    # How many connections are idle and how many in use.
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

    # After a fork the sockets are the parent's: two processes on one connection would read each
    # other's answers. Closing our copies leaves the parent's open.
    def leave_to_parent
      @idle.each(&:close)
      begin_anew
    end

    # @param pid [Integer] of the process that took the place: a call that was under way in the
    #   parent has none in the child
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
