# frozen_string_literal: true

require "active_support/log_subscriber"

module Ringwell
  module Rails
    # Writes the events of clients to the application's log, without keys, numbers or parameters.
    class LogSubscriber < ActiveSupport::LogSubscriber
      # Writes one line per batch, as a warning if there was no answer.
      def bulk(event)
        payload = event.payload
        rows = payload[:rows] ? "#{payload[:rows]} rows" : "#{payload[:bytes]} bytes"
        counts = payload.slice(:overflowed, :failed).map { |name, count| ", #{count} #{name}" }.join
        write(event, "#{rows}#{counts}")
      end

      def connect(event) = write(event, nil)

      def retry(event) = info { "Ringwell retry #{event.payload[:endpoint]}" }

      private

      def write(event, counts)
        reason = event.payload[:reason]
        line = ["Ringwell #{event.name.delete_suffix(".ringwell")} (#{event.duration.round(1)}ms)",
          event.payload[:endpoint], counts, reason].compact.join(" ")
        reason ? warn { line } : debug { line }
      end
    end
  end
end
