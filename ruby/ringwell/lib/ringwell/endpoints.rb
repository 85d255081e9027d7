# frozen_string_literal: true

module Ringwell
  # One client's endpoints. Chooses the next one, and lets those that failed rest.
  #
  # An endpoint that failed comes last until its rest is over. Then one call at a time tries it, and
  # all other calls use other endpoints until that call has an answer. Each further failure doubles
  # the rest.
  class Endpoints
    # The lengths of the first and the longest rest, in seconds.
    REST = 1.0
    REST_MAX = 16.0

    # An endpoint's known state.
    State = Struct.new(:endpoint, :addresses, :failures, :rests_until, :probed)
    private_constant :State

    # @param endpoints [Array<Endpoint>]
    def initialize(endpoints)
      @states = endpoints.map { |one| State.new(one, Addresses.new(one), 0, 0, false) }
      @mutex = Mutex.new
      @next = 0
    end

    # Tries the endpoints in turn as long as nothing has been sent and time is left. Once a request
    # has been sent, a number may have been handed out, so no other endpoint is tried. The exception
    # is a 503, because the server has then handed out no number.
    #
    # @yieldparam endpoint [Endpoint]
    # @yieldparam addresses [Addresses] the endpoint's addresses
    # @yieldparam part [Deadline] the deadline for connecting, because another endpoint may be
    #   faster
    # @yieldreturn [Response]
    # @return [Response]
    # @raise [ConnectError] no endpoint could be reached
    # @raise [DeadlineExceeded]
    def first(deadline)
      order, probe = order_and_probe
      order.each_with_index do |state, tried|
        last = tried + 1 == order.size
        begin
          response = yield(state.endpoint, state.addresses, deadline.part(order.size - tried))
          return response unless refused?(state, response) && !last && deadline.left.positive?
        rescue ConnectError
          rest(state)
          raise if last
        rescue DeadlineExceeded
          rest(state)
          raise
        end
      end
    ensure
      probe.probed = false if probe
    end

    private

    # The working endpoints in turn, then those that rest. An endpoint whose rest is over comes
    # first, if no other call is trying it.
    def order_and_probe
      @mutex.synchronize do
        first = (@next += 1) % @states.size
        ready, failed = @states.rotate(first).partition { |state| state.failures.zero? }
        now = Deadline.now
        probe = failed.find { |state| !state.probed && state.rests_until <= now }
        return [ready.concat(failed), nil] unless probe

        probe.probed = true
        [[probe, *ready, *failed.reject { |state| state.equal?(probe) }], probe]
      end
    end

    def refused?(state, response)
      refused = response.status == 503
      if refused then rest(state)
      elsif !state.failures.zero? then @mutex.synchronize { state.failures = 0 }
      end
      refused
    end

    # Failures of simultaneous calls count as one.
    def rest(state)
      @mutex.synchronize do
        now = Deadline.now
        next if state.failures.positive? && state.rests_until > now

        state.rests_until = now + [REST * (2**state.failures), REST_MAX].min
        state.failures += 1
        state.addresses.expire
      end
    end
  end
end
