# frozen_string_literal: true

module Ringwell
  module Rails
    # Makes the parameters of a visitor's URL safe to send. A URL may contain anything, and its
    # visitor must still get a page and a number.
    module PageParameters
      # Longer names and values are cut off. A whole row may have 8 KiB, and escaping turns one byte
      # into three.
      NAME_BYTES_MAX = 64
      VALUE_BYTES_MAX = 512
      QUERY_BYTES_MAX = 6 * 1024
      # The maximum length of an id that the server stores.
      VISITOR_BYTES_MAX = 128

      class << self
        # @param params [Hash, #to_unsafe_h, nil] e.g. `{ m1: params[:campaign] }`, or a request's
        #   parameters as they are
        # @return [Hash{String => Object}] the part that can be sent; nested values are omitted
        def clean(params)
          params = params.to_unsafe_h if params.respond_to?(:to_unsafe_h)
          params.to_h.each_with_object({}) do |(name, value), clean|
            name = cut(name.to_s, NAME_BYTES_MAX)
            next if Request::RESERVED.include?(name) || !scalar?(value)

            clean[name] = value.is_a?(String) ? cut(value, VALUE_BYTES_MAX) : value
            clean.delete(name) if query_bytes(clean) > QUERY_BYTES_MAX
          end
        end

        # @param visitor [Object] e.g. a cookie's value
        # @return [String, nil]
        def visitor(visitor) = (cut(visitor, VISITOR_BYTES_MAX) if visitor.is_a?(String))

        private

        def scalar?(value)
          case value
          when String, Symbol, Numeric, nil, true, false then true
          else false
          end
        end

        def cut(text, bytes) = text.byteslice(0, bytes).scrub

        def query_bytes(params)
          params.sum { |name, value| CGI.escape(name).bytesize + CGI.escape(value.to_s).bytesize + 2 }
        end
      end
    end
  end
end
