import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sends each line of stdin, a key and a value with a tab between them, to partition 0 of a topic: all
 * at once, then says a line for each in turn: its offset, or the name of an error and its message.
 * No key is null. Arguments: the topic, and the producer's settings as KEY=VALUE.
 */
public final class Send {
    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        for (int i = 1; i < words.length; i++) {
            String[] setting = words[i].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        StringSerializer text = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, text, text)) {
            // Metadata first, so that what follows is sent as fast as can be.
            producer.partitionsFor(words[0]);
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] parts = line.split("\t", 2);
                String key = parts[0].isEmpty() ? null : parts[0];
                sent.add(producer.send(new ProducerRecord<>(words[0], 0, key, parts[1])));
            }
            for (Future<RecordMetadata> each : sent) {
                try {
                    System.out.println(each.get().offset());
                } catch (ExecutionException failed) {
                    Throwable cause = failed.getCause();
                    System.out.println(cause.getClass().getSimpleName() + " " + cause.getMessage());
                }
            }
        }
    }
}
