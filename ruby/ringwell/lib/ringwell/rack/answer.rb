# frozen_string_literal: true

module Ringwell
  # The published API in any Rack server.
  module Rack
    # A response: status, headers, body. Writes the API's own errors and the single allocation.
    # These equal the server's, byte for byte (fixtures/api).
    class Answer
      JSON_TYPE = "application/json"
      XML = %(<?xml version="1.0" encoding="UTF-8"?>\n)
      TYPES = {"json" => JSON_TYPE, "xml" => "application/xml", "csv" => "text/csv"}.freeze
      # Statuses of a single allocation without a number. Any other class is a fault.
      STATUSES = {"InvalidKey" => 401, "InvalidInput" => 403, "PoolExhausted" => 503,
                   "ServiceUnavailable" => 503}.freeze

      class << self
        # The response with a batch's answer.
        def batch(body) = new(200, JSON_TYPE, body)

        # The response that lists a path's allowed methods.
        def allowed(allow) = new(204, nil, nil, allow:)

        # The response to HEAD for a single allocation.
        def head(format) = new(200, TYPES.fetch(format), "")

        # The response to a request that is refused as a whole.
        def refused(status, error_class, message, **headers)
          errors = {"errors" => {"invalid_data" => message, "class" => error_class}}
          new(status, JSON_TYPE, JSON.generate(errors), **headers)
        end

        # The response after a fault in the process. The handle is also in the log.
        def fault(handle) = refused(500, "InternalServiceError", "refer to error handle #{handle}")

        # A batch row in the single allocation's format.
        #
        # @param row [Hash] in the API's format
        # @param format [String] "json", "xml" or "csv"
        def single(row, format)
          return failed(row["error_class"], row["message"], format) if row.key?("error_class")

          new(200, TYPES.fetch(format), number(row, format))
        end

        # A single allocation without a number.
        def failed(error_class, message, format)
          status = STATUSES.fetch(error_class, 500)
          headers = {"x-content-type-options": "nosniff"}
          headers[:"retry-after"] = message[/(\d+) seconds/, 1] || "1" if status == 503
          type = format == "xml" ? TYPES["xml"] : "text/plain; charset=utf-8"
          new(status, type, error(error_class, message, format), **headers)
        end

        private

        def number(row, format)
          formatted, number, url =
            row.values_at("promo_number_formatted", "promo_number", "tracking_url")
          case format
          when "json"
            JSON.generate("promo_number_formatted" => formatted, "tracking_url" => url,
              "promo_number" => number)
          when "xml"
            "#{XML}<Response><PromoNumberFormatted>#{formatted}</PromoNumberFormatted>" \
            "<PromoNumber>#{number}</PromoNumber><TrackingUrl>#{xml(url)}</TrackingUrl>" \
            "</Response>\n"
          else
            "PromoNumberFormatted,PromoNumber,TrackingUrl\n#{formatted},#{number},#{csv(url)}\n"
          end
        end

        def error(error_class, message, format)
          return "#{error_class}: #{message}\n" unless format == "xml"

          "#{XML}<Error><Class>#{error_class}</Class><Message>#{xml(message)}</Message></Error>\n"
        end

        # XML 1.0 excludes U+FFFE, U+FFFF, and control characters except line feed and tab.
        def xml(text)
          text.gsub("&", "&amp;").gsub("<", "&lt;").gsub(">", "&gt;")
            .gsub(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\ufffe\uffff]/, "\ufffd")
        end

        def csv(text)
          text.match?(/[",]/) ? "\"#{text.gsub('"', '""')}\"" : text
        end
      end

      # @param headers [Hash{Symbol => String}] names in lower case, as Rack 3 requires
      def initialize(status, type, body, **headers)
        @status = status
        @headers = {"content-type" => type, "cache-control" => "no-store"}.compact
        @headers.update(headers.transform_keys(&:to_s))
        @body = body
      end

      # The response in the form that Rack expects.
      #
      # @param seconds [Float] the time that the request took
      # @param head [Boolean] whether only the head was requested
      def to_a(seconds, head: false)
        milliseconds = seconds * 1000
        @headers["processing-time"] = milliseconds.to_i.to_s
        @headers["server-timing"] = format("total;dur=%.3f", milliseconds)
        return [@status, @headers, []] unless @body

        @headers["content-length"] = @body.bytesize.to_s
        [@status, @headers, head ? [] : [@body]]
      end
    end
  end
end
