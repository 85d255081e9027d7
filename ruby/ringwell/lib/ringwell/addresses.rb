# frozen_string_literal: true

module Ringwell
  # The addresses of one endpoint. At most one thread at a time looks up the name, however many
  # calls wait for it. The addresses are cached for a while.
  #
  # A look-up can neither be interrupted nor limited in time, so it runs in its own thread, and its
  # callers wait until their deadlines. (Thread#join with a limit would need less code, but Ruby 3.1
  # ignores the limit under a scheduler.)
  class Addresses
    # Seconds after which addresses are looked up again. The old ones are used in the meantime.
    KEPT = 30.0

    # @param endpoint [Endpoint]
    def initialize(endpoint)
      @endpoint = endpoint
      @fixed = endpoint.fixed_addresses
      @mutex = Mutex.new
      @changed = ConditionVariable.new
      @stale_at = 0
    end

    # The addresses to try, in this order.
    #
    # @return [Array<Addrinfo>] at least one
    # @raise [ConnectError] the name has no address
    # @raise [DeadlineExceeded]
    def find(deadline) = @fixed || @mutex.synchronize { found(deadline) }

    # Makes the next call look up the name again.
    def expire = @stale_at = 0

    private

    def found(deadline)
      # The parent's threads do not exist in a forked child.
      @looking = nil if @looking && !@looking.alive?
      begin_to_look if !@looking && Deadline.now >= @stale_at
      until @found || !@looking
        @changed.wait(@mutex, deadline.left!("address of #{@endpoint}"))
      end
      @found or raise ConnectError.new("#{@endpoint}: #{@error.message}"), cause: @error
    end

    def begin_to_look
      @looking = Thread.new { look_up }
    rescue ThreadError => error
      @error = error
    end

    def look_up
      found = @endpoint.look_up
      found.empty? ? settle(nil, SocketError.new("the name has no address")) : settle(found, nil)
    rescue => error
      settle(nil, error)
    end

    # If the name was not found, the next call looks it up again.
    def settle(found, error)
      @mutex.synchronize do
        @error = error
        @found = found if found
        @stale_at = Deadline.now + KEPT if found
        @looking = nil
        @changed.broadcast
      end
    end
  end
end
