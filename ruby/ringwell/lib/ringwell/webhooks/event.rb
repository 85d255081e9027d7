# frozen_string_literal: true

require "time"

module Ringwell
  class Webhooks
    # An event that a server sends. It may come twice and out of order.
    class Event < Value
      value_fields :id, :type, :timestamp, :data

      # The body is not an event.
      class Unreadable < Error; end

      # @param id [String] the same each time the event is sent
      # @param type [String] e.g. "call.completed"
      # @param timestamp [Time] when it happened
      # @param data [Hash{String => Object}] what the type says
      def initialize(id:, type:, timestamp:, data: {})
        @id = Value.copy(id)
        @type = Value.copy(type)
        @timestamp = timestamp.dup.freeze
        @data = Event.freeze_deeply(data)
        freeze
      end

      # Reads the body of a request. Members that are unknown are left out.
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

      # A copy, frozen to the bottom.
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
