# frozen_string_literal: true

module Ringwell
  # Reports the events of a source of numbers to an instrumenter. If there is no subscriber, creates
  # no objects.
  class Instrumentation
    # @param instrumenter [#instrument, Symbol, nil] :active_support for ActiveSupport::Notifications
    #   as soon as it is loaded
    def initialize(instrumenter)
      instrumenter.nil? || instrumenter == :active_support || instrumenter.respond_to?(:instrument) or
        raise ConfigError, "instrumenter must have `instrument`, got #{instrumenter.inspect}"
      @instrumenter = instrumenter
    end

    # Instruments the block as an event. The block may add to the payload.
    #
    # @yieldparam payload [Hash, nil] nil without a subscriber
    def event(name, **payload)
      listener = listener(name)
      return yield(nil) unless listener

      # Some instrumenters do not return what the block returns.
      result = nil
      listener.instrument(name, payload) { result = yield(payload) }
      result
    end

    # The event for a batch of rows.
    #
    # @yieldreturn [Batch]
    def batch(rows, deadline)
      listener = listener("bulk.ringwell")
      return yield(nil) unless listener

      event("bulk.ringwell", rows:, deadline:) do |payload|
        batch = yield(payload)
        payload[:overflowed] = batch.overflowed.size
        payload[:failed] = batch.errors.size
        batch
      end
    end

    # The event for a batch that is sent as bytes.
    def bytes(bytes, deadline)
      event("bulk.ringwell", bytes:, deadline:) do |payload|
        yield(payload)
      rescue TransportError, ServerError => error
        payload[:reason] = error.reason if payload
        raise
      end
    end

    private

    # The instrumenter, if an event may have subscribers. An instrumenter with a notifier can report
    # that it has no subscribers, which saves the work.
    def listener(name)
      listener = @instrumenter
      if listener == :active_support
        return unless defined?(ActiveSupport::Notifications)

        listener = ActiveSupport::Notifications
      end
      return listener unless listener.respond_to?(:notifier)

      listener if listener.notifier.listening?(name)
    end
  end
end
