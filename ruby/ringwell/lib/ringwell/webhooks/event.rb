# frozen_string_literal: true

require "time"

module Ringwell
  class Webhooks
    # An event that a server sends. It may arrive twice and out of order.
    class Event < Value
      value_fields :id, :type, :timestamp, :data

      # The body is not an event.
      class Unreadable < Error; end

      # @param id [String] the same in each delivery of the event
      # @param type [String] e.g. "call.completed"
      # @param timestamp [Time] the time of the event
      # @param data [Hash{String => Object}] the data for this type of event
      def initialize(id:, type:, timestamp:, data: {})
        @id = Value.copy(id)
        @type = Value.copy(type)
        @timestamp = timestamp.dup.freeze
        @data = Event.freeze_deeply(data)
        freeze
      end

      # Reads a request's body. Unknown members are omitted.
      #
      # @raise [Unreadable]
      def self.read(id, body)
        event = JSON.parse(body)
        event.is_a?(Hash) or raise TypeError, "it is not an object"
        event.values_at("type", "timestamp") => [String => type, String => timestamp]
        data = event.fetch("data", {})
        data.is_a?(Hash) or raise TypeError, "its data is not an object"
        new(id:, type:, timestamp: Time.iso8601(timestamp), data:)
      rescue JSON::ParserError, NoMatchingPatternError, ArgumentError, TypeError => error
        raise Unreadable, "the body is not an event: #{error.message[0, 100].scrub}"
      end

      # A deep copy, frozen.
      def self.freeze_deeply(object)
        case object
        when Hash then object.to_h { |name, value| [Value.copy(name), freeze_deeply(value)] }.freeze
        when Array then object.map { |one| freeze_deeply(one) }.freeze
        else Value.copy(object)
        end
      end
    end
  end
end
